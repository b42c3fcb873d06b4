-- The event log: facts about jobs (lib_facts), and where the history of a name ends.

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
  for index, name in ipairs(names) do
    found[index] = tonumber(found[index] or EVENTS and packs.tail(name) or '0')
  end
  return found
end

-- Goes on from such a fact: there is a row now.
function log.untail(name, previous)
  if previous > 0 then zdrop(TAILS, name) end
end
