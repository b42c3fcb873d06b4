-- replay: {{{sequence, new id}, ...}, by or nil, step or nil} -> for each 1 (done) or 0 (its state,
-- its journal or the cap of its tenant does not allow it). The new job starts with what the journal
-- has from before the step.

base.insist()
base.by = ARGS[2]

local function over_cap(tenant, size)
  local settings, record = limits.of('t', tenant, ''), counts.of('t', tenant, '')
  return (settings.max_queued and counts.alive(record) + 1 > settings.max_queued)
    or (settings.max_bytes and record[BYTES] + size > settings.max_bytes)
end

-- The bytes of a payload: the size of a row counts its edges too, which a replay has not.
local function payload_size(row, body)
  if not rows.has(row, EDGES) then return row.size end
  local fine, found = pcall(cmsgpack.unpack, body or '')
  return fine and type(found) == 'table' and found[4] and #found[4] or 0
end

local function copy_of(origin, id, body)
  local size = payload_size(origin, body)
  local row = rows.fresh(rows.name(origin.tenant, id), values.copied(origin, id, size))
  row.priority = origin.priority
  if origin.expires > 0 then row.expires = NOW + origin.expires - origin.created end
  return row
end

local function instant_of(text) return #text >= 8 and struct.unpack('>d', text) or 0 end

-- What a replay of a job from a step starts with, as `journal.before_step`: fields and values; nil
-- if it has no such step.
local function before(row, step)
  if not rows.has(row, JOURNAL) then return nil end
  local flat, found, till = call('HGETALL', key('journal:' .. row.seq)), {}, nil
  for at = 1, #flat, 2 do
    if flat[at] == 's' .. step then till = instant_of(flat[at + 1]) end
  end
  if not till then return nil end
  for at = 1, #flat, 2 do
    local letter = string.sub(flat[at], 1, 1)
    local is_step = letter == 's' or letter == 'p'
    if letter == 'g' or is_step and instant_of(flat[at + 1]) < till then
      found[#found + 1], found[#found + 2] = flat[at], flat[at + 1]
    end
  end
  return found
end

local function replay(seq, id)
  local origin = rows.get(seq)
  if not origin or origin.state < ENDED or rows.has(origin, REPLAYED) then return 0 end
  local known = ARGS[3] and before(origin, ARGS[3])
  if ARGS[3] and not known then return 0 end
  local body = call('HGET', key('bodies'), seq)
  local row = copy_of(origin, id, body)
  if not rows.named(row.name) then
    if over_cap(row.tenant, row.size) then return 0 end
    row.last = events.tails({row.name})[1]
    index.insert(row, body)
    if known then journal.copy(row, known) end
  end
  values.keep(origin, REPLAYED, id)
  events.note('replayed', origin, nil, id)
  return 1
end

local answers = {}
for at, item in ipairs(ARGS[1]) do answers[at] = replay(item[1], item[2]) end
base.finish()
return answers
