-- The event log: a stream with one entry for all events of a call.
--
-- The id of an entry is the cursor of its last event; the cursors before it are SHARDS apart. The
-- events of an entry are one flat list, EVENT_SIZE values each. Each names the cursor of the event
-- before it about the same job, so the history of a job is found by following these back from the
-- row (`last`), or from `tails` once the row is gone.
-- If an operator acted, the note is {note or false, who and why}.

local TAILS = key('tails')
local ENDS = {completed = true, failed = true, canceled = true, deleted = true}

local list, count = {}, 0

-- Adds an event about a name; `previous` is the cursor of the last one. Returns the new cursor.
function events.add(kind, tenant, id, queue, type, attempt, fence, until_at, note, previous)
  if not EVENTS then return 0 end
  note = note or false
  if base.by then note = {note, base.by} end
  if count == 0 then
    list, count = {kind, tenant, id, queue, type, attempt, fence, until_at or false, note, previous}, 1
    return base.tick('cursor')
  end
  heads.cursor = heads.cursor + SHARDS
  local at = count * EVENT_SIZE
  list[at + 1], list[at + 2], list[at + 3], list[at + 4] = kind, tenant, id, queue
  list[at + 5], list[at + 6], list[at + 7] = type, attempt, fence
  list[at + 8], list[at + 9], list[at + 10] = until_at or false, note, previous
  count = count + 1
  return heads.cursor
end

-- Adds an event about a job. `lived`: the job had not ended before this call.
function events.note(kind, row, until_at, note, lived)
  row.last = events.add(kind, row.tenant, row.id, row.queue, row.type, row.attempt, row.fence,
    until_at, note, row.last)
  if lived and row.group and ENDS[kind]
    and counts.alive(counts.of('g', row.tenant, row.group)) == 0
  then
    row.last = events.add('drained', row.tenant, row.id, row.queue, row.type, row.attempt,
      row.fence, nil, row.group, row.last)
  end
  if row.gone then events.set_tail(rows.name_of(row), row.last) else row.dirty = true end
end

-- Stores the cursor of the last event about a name that has no row.
function events.set_tail(name, cursor)
  if EVENTS and cursor > heads.floor then zput(TAILS, name, cursor) end
end

-- The cursors of the last events about names that have no row; 0 where there is none.
function events.tails(names)
  zflush(TAILS)
  local found = EVENTS and base.fetch('ZMSCORE', TAILS, names) or {}
  for index = 1, #names do found[index] = tonumber(found[index] or '0') end
  return found
end

-- Continues the history of a name: from now on its row has the cursor.
function events.drop_tail(name, previous)
  if previous > 0 then zdrop(TAILS, name) end
end

-- Forgets what was pruned.
function events.set_floor(floor)
  base.set_head('floor', floor)
  zflush(TAILS)
  call('ZREMRANGEBYSCORE', TAILS, '-inf', whole(floor))
end

function events.save()
  if count == 0 then return end
  call('XADD', key('events'), whole(heads.cursor) .. '-0',
    'a', whole(NOW), 'n', count, 'e', cmsgpack.pack(list))
  list, count = {}, 0
end
