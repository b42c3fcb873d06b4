-- Facts, on their way to the event log: a stream with one entry for all the facts of a call.
--
-- The id of an entry is the cursor of its last fact; those before it are SHARDS apart. A fact names
-- the cursor of the one before it about the same job, so that a history is found by following them
-- back from the row (`last`), or from `tails` once there is none.
--
-- Facts about many jobs in a row that differ in nothing but the id are told as one: `*<number>:` is
-- before its kind, the ids are in one text, and the one before it is that of the first job; those of
-- the others follow, SHARDS apart.

-- Of an operator's act the note is {note or false, who and why}.

local log = {}
local facts, facts_told, facts_count = {}, 0, 0

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
  untill, note = untill or false, note or false
  if core.by then note = {note, core.by} end
  if facts_told == 0 then -- Mostly the only one: a table that is made whole never grows.
    facts = {kind, tenant, id, queue, type, attempt, fence, untill, note, previous}
  else
    local at = facts_told * FACT_SIZE
    facts[at + 1], facts[at + 2], facts[at + 3], facts[at + 4] = kind, tenant, id, queue
    facts[at + 5], facts[at + 6], facts[at + 7] = type, attempt, fence
    facts[at + 8], facts[at + 9], facts[at + 10] = untill, note, previous
  end
  facts_told, facts_count = facts_told + 1, facts_count + 1
  return cursor
end

-- Facts about so many jobs, whose ids are in one text. Returns the cursor of the first.
function log.facts(number, kind, tenant, ids, queue, type, attempt, fence, untill, note, previous)
  local cursor = log.fact('*' .. whole(number) .. ':' .. kind, tenant, ids, queue, type, attempt,
    fence, untill, note, previous)
  if EVENTS then
    heads.cursor = cursor + (number - 1) * SHARDS
    facts_count = facts_count + number - 1
  end
  return cursor
end

-- Takes back what was noted.
function log.forget() facts, facts_told, facts_count = {}, 0, 0 end

function log.save()
  if facts_count == 0 then return end
  call('XADD', key('events'), whole(heads.cursor) .. '-0',
    'a', whole(NOW), 'n', facts_count, 'e', cmsgpack.pack(facts))
end
