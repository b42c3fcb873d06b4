-- Rows: what changes of a job, packed, followed by what never does, as Python packed it (lib_row).
-- A row in memory knows its sequence as text.

local cache, by_name = {}, {}

local starts = {} -- By tenant: most batches are one's.

function rows.name(tenant, id)
  local start = starts[tenant]
  if not start then
    start = #tenant .. ':' .. tenant
    starts[tenant] = start
  end
  return start .. id
end

local function some(text) return text ~= '' and text or nil end
local function tail_of(text, at) return at <= #text and string.sub(text, at) or '' end

-- A row as a table. Of one that is damaged nothing is known but its sequence: it is set aside, in no
-- place any more, for people to look at.
function rows.read(seq, text)
  local state, flags, reason, attempt, fence, lapses, misses, priority, created, updated, run_at,
    expires, lease, last, nonce, worker, max_attempts, keep, keep_failed, key_us, size, tenant, id,
    queue, type, group, job_key, at = unpacked(text)
  if not state then
    zput(key('damaged'), seq, NOW)
    return nil
  end
  return {
    seq = seq, state = state, flags = flags, reason = reason, attempt = attempt, fence = fence,
    lapses = lapses, misses = misses, priority = priority, created = created, updated = updated,
    run_at = run_at, expires = expires, lease = lease, last = last, nonce = nonce, worker = worker,
    max_attempts = max_attempts, keep = keep, keep_failed = keep_failed, key_us = key_us,
    size = size, tenant = tenant, id = id, queue = queue, type = type, group = some(group),
    key = some(job_key), tail = tail_of(text, at), text = text,
  }
end

-- A row of what never changes, as enqueue has it.
function rows.fresh(name, fixed)
  local max_attempts, keep, keep_failed, key_us, size, tenant, id, queue, type, group, job_key, at =
    struct.unpack('>' .. FIXED, fixed)
  return {
    name = name, max_attempts = max_attempts, keep = keep, keep_failed = keep_failed,
    key_us = key_us, size = size, tenant = tenant, id = id, queue = queue, type = type,
    group = some(group), key = some(job_key), tail = tail_of(fixed, at), flags = 0, reason = 0, attempt = 0, fence = 0, lapses = 0,
    misses = 0, lease = 0, nonce = '', worker = '', state = ENQUEUED, created = NOW, updated = NOW,
    run_at = NOW, expires = 0,
  }
end

-- The tags and the origin of a row, nil where there are none.
function rows.more(row)
  if row.tail == '' then return nil, nil end
  local fine, found = pcall(cmsgpack.unpack, row.tail)
  if not fine or type(found) ~= 'table' then return nil, nil end -- Nobody can read them.
  return found[1] or nil, found[2] or nil
end

function rows.pack(row)
  local group, job_key = row.group or '', row.key or ''
  -- In one piece: every text that is made is also hashed.
  local text = struct.pack(FORMAT, row.state, row.flags, row.reason, row.attempt, row.fence,
    row.lapses, row.misses, row.priority, row.created, row.updated, row.run_at, row.expires,
    row.lease, row.last, #row.nonce, row.nonce, #row.worker, row.worker, row.max_attempts, row.keep,
    row.keep_failed, row.key_us, row.size, #row.tenant, row.tenant, #row.id, row.id, #row.queue,
    row.queue, #row.type, row.type, #group, group, #job_key, job_key)
  if row.tail ~= '' then text = text .. row.tail end
  row.text = text
  return text
end

function rows.name_of(row)
  local name = row.name
  if not name then
    name = rows.name(row.tenant, row.id)
    row.name = name
  end
  return name
end

-- Reads the rows of these sequences, each once per call.
function rows.load(seqs)
  local missing = {}
  for _, seq in ipairs(seqs) do
    if cache[seq] == nil then missing[#missing + 1] = seq end
  end
  if #missing == 0 then return end
  plain.settle()
  hsettle(ROWS)
  local found = core.values(ROWS, missing)
  for index, seq in ipairs(missing) do
    cache[seq] = found[index] and rows.read(seq, found[index]) or false
  end
end

-- The row of a text that was read already; the one that is known, if it is. Nil when it is damaged.
function rows.adopt(seq, text)
  if not cache[seq] then cache[seq] = rows.read(seq, text) or false end
  return cache[seq] or nil
end

-- The row that is known by a sequence, or becomes so now; nil or false when none is.
function rows.cached(seq, row)
  if row then cache[seq] = row end
  return cache[seq]
end

-- Whether a row has been read or changed in this call.
function rows.known(seq) return cache[seq] ~= nil end

-- The rows of these sequences, without those that are not there.
function rows.list(seqs)
  local found = {}
  rows.load(seqs)
  for _, seq in ipairs(seqs) do found[#found + 1] = rows.get(seq) end
  return found
end

-- The row of a sequence; nil when there is none.
function rows.get(seq)
  local row = cache[seq]
  if row == nil then
    rows.load({seq})
    row = cache[seq]
  end
  return row or nil
end

-- Looks up the sequences of these names, in one go.
function rows.find(names)
  local missing = {}
  for _, name in ipairs(names) do
    if by_name[name] == nil then missing[#missing + 1] = name end
  end
  local found = core.values(NAMES, missing)
  for index, name in ipairs(missing) do
    by_name[name] = found[index] or packs.find(name) or false
  end
end

-- The sequence of a name; nil when there is none.
function rows.seq_of(name)
  if by_name[name] == nil then rows.find({name}) end
  return by_name[name] or nil
end

function rows.named(name)
  local seq = rows.seq_of(name)
  return seq and rows.get(seq)
end

-- Knows of a row that is written elsewhere.
function rows.named_now(name, seq) by_name[name] = seq end

function rows.add(row, body)
  local name = rows.name_of(row)
  cache[row.seq], by_name[name] = row, row.seq
  row.dirty = true
  hput(NAMES, name, row.seq)
  hput(BODIES, row.seq, body)
  zput(key('of:' .. row.tenant), row.seq, row.seq)
end

local SELDOM = {[ERROR] = 'errors', [RESULT] = 'results', [PROGRESS] = 'progress',
  [REPLAYED] = 'replays'}

-- Keeps a seldom thing of a row; nil forgets it.
function rows.keep(row, flag, value)
  if value then
    mark(row, flag)
    hput(key(SELDOM[flag]), row.seq, value)
  elseif has(row, flag) then
    unmark(row, flag)
    hdrop(key(SELDOM[flag]), row.seq)
  end
  row.dirty = true
end

-- What is kept of a row beside it; false where there is nothing.
function rows.kept(row, flag)
  if not has(row, flag) then return false end
  local name = key(SELDOM[flag])
  hsettle(name)
  return call('HGET', name, row.seq)
end

function rows.remove(row)
  local name = rows.name_of(row)
  row.gone, row.dirty = true, false
  cache[row.seq], by_name[name] = false, false
  hdrop(ROWS, row.seq)
  hdrop(BODIES, row.seq)
  hdrop(NAMES, name)
  zdrop(key('of:' .. row.tenant), row.seq)
  for flag in pairs(SELDOM) do
    if has(row, flag) then rows.keep(row, flag, nil) end
  end
  row.dirty = false
end

function rows.save()
  for seq, row in pairs(cache) do
    if row and row.dirty then
      hput(ROWS, seq, rows.pack(row))
      row.dirty = false
    end
  end
end

-- The seldom things of a row, as they are told.
function rows.seldom(row)
  return {rows.kept(row, ERROR), rows.kept(row, RESULT), rows.kept(row, PROGRESS),
    rows.kept(row, REPLAYED)}
end

-- The rows as they are told: for each sequence, row, body, and the seldom things. After the end of
-- the step, when all are packed.
function rows.told(list)
  local seqs, answer = {}, {}
  for index, row in ipairs(list) do seqs[index] = row.seq end
  local bodies = core.values(BODIES, seqs)
  for index, row in ipairs(list) do
    local one = {row.seq, row.text or rows.pack(row), bodies[index] or row.body}
    if row.flags >= ERROR then one[4], one[5], one[6], one[7] = unpack(rows.seldom(row)) end
    answer[index] = one
  end
  return answer
end

-- The state as a reader sees it, as `lifecycle.seen`.
function rows.seen(row)
  if (row.state == SCHEDULED or row.state == RETRYING) and row.run_at <= NOW then return ENQUEUED end
  return row.state
end
