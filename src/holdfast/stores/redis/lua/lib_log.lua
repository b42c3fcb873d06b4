-- The event log: a stream with one entry for all the facts of a call.
--
-- The id of an entry is the cursor of its last fact; those before it are SHARDS apart. A fact names
-- the cursor of the one before it about the same job, so that a history is found by following them
-- back from the row (`last`), or from `tails` once there is none.

local facts, facts_count = {}, 0

-- A fact about a name; `previous` is the cursor of the last one. Returns its own.
function log.fact(kind, tenant, id, queue, type, attempt, fence, untill, note, previous)
  if not EVENTS then return 0 end
  local cursor
  if facts_count > 0 then
    cursor = heads.cursor + SHARDS
    heads.cursor = cursor
  else
    cursor = core.tick('cursor')
  end
  local at = facts_count * FACT_SIZE
  facts[at + 1], facts[at + 2], facts[at + 3], facts[at + 4] = kind, tenant, id, queue
  facts[at + 5], facts[at + 6], facts[at + 7] = type, attempt, fence
  facts[at + 8], facts[at + 9], facts[at + 10] = untill or false, note or false, previous
  facts_count = facts_count + 1
  return cursor
end

local ENDS = {completed = true, failed = true, canceled = true, deleted = true}

local function tell(kind, row, untill, note)
  row.last = log.fact(kind, row.tenant, row.id, row.queue, row.type, row.attempt, row.fence, untill,
    note, row.last)
end

-- A fact about a job. `lived`: it had not ended before.
function log.note(kind, row, untill, note, lived)
  tell(kind, row, untill, note)
  if row.group and lived and ENDS[kind]
    and counts.alive(counts.of('g', row.tenant, row.group)) == 0
  then
    tell('drained', row, nil, row.group)
  end
  if row.gone then
    log.tail(rows.name_of(row), row.last)
  else
    row.dirty = true
  end
end

-- Whether a fact about a name without a row is to be remembered.
function log.tailed(cursor) return EVENTS and cursor > heads.floor end

-- Remembers the last fact about a name that has no row.
function log.tail(name, cursor)
  if log.tailed(cursor) then zput(TAILS, name, cursor) end
end

-- The last facts about names that have no row now, which new ones go on from; 0 where none is known.
function log.tails(names)
  zsettle(TAILS)
  local found = EVENTS and #names > 0 and call('ZMSCORE', TAILS, unpack(names)) or {}
  for index in ipairs(names) do found[index] = tonumber(found[index] or '0') end
  return found
end

-- Goes on from such a fact: there is a row now.
function log.untail(name, previous)
  if previous > 0 then zdrop(TAILS, name) end
end

function log.save()
  if facts_count == 0 then return end
  call('XADD', key('events'), whole(heads.cursor) .. '-0',
    'a', whole(NOW), 'n', facts_count, 'e', cmsgpack.pack(facts))
end
