-- Rows: the stored record of a job. layout.py draws the format; rows.py reads it.
--
-- A row is a head of fixed size (what changes), the nonce and the worker of its lease, and a fixed
-- part that Python packed and no script changes. In memory a row is a table with the sequence as
-- text. Each row is read at most once per call and is written at the end of the call if it is
-- `dirty`.

local ROWS, BODIES, NAMES = key('rows'), key('bodies'), key('names')

local cache, by_name = {}, {}

-- What `save` writes, as lists of values: names and bodies of new jobs, sequences and names of
-- deleted ones, and by tenant the sequences to add to and remove from its list of jobs.
local new_names, new_bodies, new_count = {}, {}, 0
local gone, gone_names, gone_count = {}, {}, 0
local listed, unlisted = {}, {}

function rows.has(row, flag) return row.flags % (2 * flag) >= flag end
function rows.mark(row, flag)
  if not rows.has(row, flag) then row.flags = row.flags + flag end
end
function rows.unmark(row, flag)
  if rows.has(row, flag) then row.flags = row.flags - flag end
end

-- What the name of a job starts with; as `name_of` in rows.py.
local starts = {}
function rows.start(tenant)
  local start = starts[tenant]
  if not start then
    start = #tenant .. ':' .. tenant
    starts[tenant] = start
  end
  return start
end
function rows.name(tenant, id) return rows.start(tenant) .. id end

function rows.name_of(row) return row.name or rows.name(row.tenant, row.id) end

-- A row as a table. A damaged row (one that cannot be parsed) is listed in `damaged` for the
-- operator. With `left`, `dirty` and `gone` it has 32 fields; one more would double its size.
local function read(seq, text)
  local fine, state, flags, reason, attempt, fence, lapses, more, misses, priority, created, updated,
    run_at, expires, lease, last, nonce, worker, max_attempts, keep, keep_failed, _, size,
    tenant, id, queue, type, group, job_key = pcall(struct.unpack, ROW_FORMAT, text)
  if not fine or state < WAITING or state > CANCELED then
    zput(key('damaged'), seq, NOW)
    return nil
  end
  return {
    seq = seq, state = state, flags = flags + 256 * more, reason = reason, attempt = attempt, fence = fence,
    lapses = lapses, misses = misses, priority = priority, created = created, updated = updated,
    run_at = run_at, expires = expires, lease = lease, last = last, nonce = nonce, worker = worker,
    max_attempts = max_attempts, keep = keep, keep_failed = keep_failed, size = size,
    tenant = tenant, id = id, queue = queue, type = type,
    group = group ~= '' and group, key = job_key ~= '' and job_key, text = text,
    fixed_at = ROW_HEAD_SIZE + #nonce + #worker,
  }
end

-- The row of a new job that is ready now, from its fixed part.
function rows.fresh(name, fixed)
  local max_attempts, keep, keep_failed, _, size, tenant, id, queue, type, group, job_key =
    struct.unpack(ROW_FIXED, fixed)
  return {
    name = name, max_attempts = max_attempts, keep = keep, keep_failed = keep_failed,
    size = size, tenant = tenant, id = id, queue = queue, type = type,
    group = group ~= '' and group, key = job_key ~= '' and job_key, text = fixed, fixed_at = 1,
    flags = 0, reason = 0, attempt = 0, fence = 0, lapses = 0, misses = 0, priority = 0, last = 0,
    state = ENQUEUED, created = NOW, updated = NOW, run_at = NOW, expires = 0, lease = 0,
    nonce = '', worker = '', seq = '', dirty = false,
  }
end

-- The fixed part of a row.
function rows.fixed_of(row) return string.sub(row.text, row.fixed_at) end

-- Where the texts of a row end, in its text. Its edges follow, if it has them, then the rest.
function rows.texts_end(row)
  return row.fixed_at + FIXED_SIZE + #row.tenant + #row.id + #row.queue + #row.type
    + (row.group and #row.group or 0) + (row.key and #row.key or 0)
end

-- The edges that a row has in itself, as a part of `edges`; false if they cannot be read.
function rows.edges(row)
  local fine, text = pcall(struct.unpack, '>Hc0', row.text, rows.texts_end(row))
  return fine and text
end

-- The row as it is stored.
function rows.packed(row)
  local flags = row.flags % 256
  local text = struct.pack(ROW_CHANGED, row.state, flags, row.reason, row.attempt, row.fence,
    row.lapses, (row.flags - flags) / 256, row.misses, row.priority, row.created, row.updated, row.run_at, row.expires,
    row.lease, row.last, #row.nonce, row.nonce, #row.worker, row.worker,
    string.sub(row.text, row.fixed_at))
  row.text, row.fixed_at = text, ROW_HEAD_SIZE + #row.nonce + #row.worker
  return text
end

-- -- reading --------------------------------------------------------------------------------------

function rows.load(seqs)
  local missing = {}
  for _, seq in ipairs(seqs) do
    if cache[seq] == nil then missing[#missing + 1] = seq end
  end
  local found = base.fetch('HMGET', ROWS, missing)
  for index, seq in ipairs(missing) do
    cache[seq] = found[index] and read(seq, found[index]) or false
  end
end

-- The row of a sequence; nil if there is none.
function rows.get(seq)
  if cache[seq] == nil then rows.load({seq}) end
  return cache[seq] or nil
end

-- The rows of these sequences, without those that do not exist.
function rows.list(seqs)
  local found = {}
  rows.load(seqs)
  for _, seq in ipairs(seqs) do found[#found + 1] = rows.get(seq) end
  return found
end

-- Reads the sequences of these names. Returns all that are known, by name; false is none.
function rows.find(names)
  local missing = {}
  for _, name in ipairs(names) do
    if by_name[name] == nil then missing[#missing + 1] = name end
  end
  local found = base.fetch('HMGET', NAMES, missing)
  for index, name in ipairs(missing) do by_name[name] = found[index] or false end
  return by_name
end

-- The sequence of a name; nil if there is none.
function rows.seq_of(name)
  if by_name[name] == nil then rows.find({name}) end
  return by_name[name] or nil
end

function rows.named(name)
  local seq = rows.seq_of(name)
  return seq and rows.get(seq)
end

-- -- writing --------------------------------------------------------------------------------------

function rows.add(row, body)
  local name, seq = rows.name_of(row), row.seq
  cache[seq], by_name[name] = row, seq
  row.dirty = true
  local to = new_count
  new_names[to + 1], new_names[to + 2] = name, seq
  new_bodies[to + 1], new_bodies[to + 2] = seq, body
  new_count = to + 2
  local list = listed[row.tenant]
  if not list then
    list = {}
    listed[row.tenant] = list
  end
  to = #list
  list[to + 1], list[to + 2] = seq, seq
end

function rows.remove(row)
  local name, seq = rows.name_of(row), row.seq
  cache[seq], by_name[name] = false, false
  gone_count = gone_count + 1
  gone[gone_count], gone_names[gone_count] = seq, name
  local list = unlisted[row.tenant]
  if not list then
    list = {}
    unlisted[row.tenant] = list
  end
  list[#list + 1] = seq
  if row.flags >= ERROR then values.drop(row) end
  row.gone, row.dirty = true, false
end

function rows.save()
  local written, to = {}, 0
  for seq, row in pairs(cache) do
    if row and row.dirty then
      written[to + 1], written[to + 2] = seq, rows.packed(row)
      to = to + 2
      row.dirty = false
    end
  end
  base.send('HSET', ROWS, written)
  base.send('HSET', NAMES, new_names)
  base.send('HSET', BODIES, new_bodies)
  base.send('HDEL', ROWS, gone)
  base.send('HDEL', NAMES, gone_names)
  base.send('HDEL', BODIES, gone)
  for tenant, list in pairs(listed) do base.send('ZADD', key('of:' .. tenant), list) end
  for tenant, list in pairs(unlisted) do base.send('ZREM', key('of:' .. tenant), list) end
end

-- The state as a reader sees it, as `lifecycle.seen`: a due job is enqueued.
function rows.seen(row)
  local is_due = (row.state == SCHEDULED or row.state == RETRYING) and row.run_at <= NOW
  return is_due and ENQUEUED or row.state
end
