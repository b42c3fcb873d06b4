-- Journals: what jobs remember between their runs. Flags of the row say what a job has of it.
--
--   journal:<seq>  hash: letter and name of an entry -> instant (double) and value. Letters: s step,
--                  p position, g signal, j join; the value of a join is its total, how many ends it
--                  awaits yet, and how many of the others have not completed (4 bytes each). '#' ->
--                  its size (lib_sizes)
--   notes:<seq>    hash, likewise: e error, l line of the log; '#' -> number of lines so far
--   parents        hash: name -> the join of a job with parents, which has no entry: the numbers, and
--                  the sequence of the job while it may be counted in. The join of one parent is in
--                  flags of the row instead
--
-- A usual job has none of these keys, and no command is made for it.

local has, mark = rows.has, rows.mark
local PARENTS_OF = key('parents')
local AT, JOIN = '>d', '>I4I4I4'
local AT_SIZE, JOIN_SIZE, SEQ_SIZE = 8, 12, 16

local parents_of = {} -- By name: joins of parents that were read, false where there is none.
local joins_of = {} -- By sequence and name: other joins, likewise.

local function notes_key(row) return key('notes:' .. row.seq) end

-- -- joins ----------------------------------------------------------------------------------------

-- A join as a table, from its three numbers; false if these cannot be read.
local function join_of(text, at)
  if not text or #text - at + 1 ~= JOIN_SIZE then return false end
  local total, left, failed = struct.unpack(JOIN, text, at)
  return {total = total, left = left, failed = failed, dirty = false}
end

-- Reads the joins of the parents of the jobs of these names. Returns all that are known, by name;
-- false is none. What ends a job before its join is complete closes the join: it has no sequence then.
function journal.load_parents(names)
  local missing = {}
  for _, name in ipairs(names) do
    if parents_of[name] == nil then missing[#missing + 1], parents_of[name] = name, false end
  end
  for at, text in ipairs(base.fetch('HMGET', PARENTS_OF, missing)) do
    local seq = text and #text == JOIN_SIZE + SEQ_SIZE and string.sub(text, JOIN_SIZE + 1)
    local join = join_of(seq and string.sub(text, 1, JOIN_SIZE) or text, 1)
    if join then join.seq = seq end
    parents_of[missing[at]] = join
  end
  return parents_of
end

-- The join of the parents of the job of this name; nil if it has none.
function journal.parents(name)
  if parents_of[name] == nil then journal.load_parents({name}) end
  return parents_of[name] or nil
end

-- Ends the join of a job that ends before its parents.
function journal.close(row)
  if not has(row, PARENTS) then return end
  local join = journal.parents(rows.name_of(row))
  if join and join.left > 0 then join.seq, join.dirty = false, true end
end

-- The join of the parents of a job; nil if it has none. That of one parent is in the row.
local function of_parents(row)
  if has(row, PARENTS) then return journal.parents(rows.name_of(row)) end
  if not has(row, ROW_JOIN) then return nil end
  return {total = 1, left = has(row, ROW_JOIN_DONE) and 0 or 1,
    failed = has(row, ROW_JOIN_FAILED) and 1 or 0}
end

-- A join of a job; nil if it has none of that name. The name of that of its parents is empty.
function journal.join(row, name)
  if name == '' then return of_parents(row) end
  local id = row.seq .. name
  if joins_of[id] == nil and has(row, JOURNAL) then
    hflush(sizes.key(row))
    local text = call('HGET', sizes.key(row), 'j' .. name)
    local join = join_of(text, AT_SIZE + 1)
    if join then join.row, join.name, join.start = row, name, string.sub(text, 1, AT_SIZE) end
    joins_of[id] = join
  end
  return joins_of[id] or nil
end

-- Counts an end that a join awaited.
function journal.count(join, failed)
  join.left, join.dirty = join.left - 1, true
  if failed then join.failed = join.failed + 1 end
end

function journal.save()
  local counted, to = {}, 0
  for name, join in pairs(parents_of) do
    if join and join.dirty then
      counted[to + 1] = name
      counted[to + 2] = struct.pack(JOIN, join.total, join.left, join.failed) .. (join.seq or '')
      join.dirty, to = false, to + 2
    end
  end
  base.send('HSET', PARENTS_OF, counted)
  for _, join in pairs(joins_of) do
    if join and join.dirty and not join.row.gone then
      hput(sizes.key(join.row), 'j' .. join.name,
        join.start .. struct.pack(JOIN, join.total, join.left, join.failed))
      join.dirty = false
    end
  end
end

-- -- writing --------------------------------------------------------------------------------------

-- The bytes of a stored value; nil if there is no such entry.
local function length_of(row, field)
  if not has(row, JOURNAL) then return nil end
  local stored = call('HSTRLEN', sizes.key(row), field)
  return stored > 0 and stored - AT_SIZE or nil
end

local function stored_value(letter, value)
  if letter == 'j' then
    local total = tonumber(value)
    value = struct.pack(JOIN, total, total, 0)
  end
  return struct.pack(AT, NOW) .. value
end

-- The entries that are stored among those a lease brings back, by field, and the new size of the
-- journal; nil if there are none. As `journal.written`.
local function written(row, entries)
  local lengths, fresh, size = {}, {}, nil
  for at = 1, #entries, 3 do
    local letter, value = entries[at], entries[at + 2]
    if letter ~= 'e' and letter ~= 'l' then
      local field = letter .. entries[at + 1]
      size = size or sizes.of(row)
      local length = lengths[field] or length_of(row, field)
      if letter == 'p' or not length then
        local what = letter == 'g' and 'signals' or 'steps'
        size.bytes = size.bytes + #value - (length or 0)
        if not length then size[what] = size[what] + 1 end
        lengths[field], fresh[field] = #value, stored_value(letter, value)
      end
    end
  end
  return fresh, size
end

-- Stores errors, and lines of the log, of which the newest are kept.
local function write_notes(row, entries)
  local name, logs = notes_key(row), nil
  for at = 1, #entries, 3 do
    local letter, field = entries[at], entries[at + 1]
    if letter == 'l' then
      logs = logs or tonumber(has(row, NOTES) and call('HGET', name, '#') or '0') or 0
      field, logs = whole(logs % LOGS_MAX), logs + 1
    end
    if letter == 'e' or letter == 'l' then
      hput(name, letter .. field, stored_value(letter, entries[at + 2]))
      mark(row, NOTES)
    end
  end
  if logs then hput(name, '#', whole(logs)) end
end

-- Stores what counts of these entries, given as letter, name, value, letter, ...; or none of them:
-- then it returns the size that would be too much.
function journal.write(row, entries)
  hflush(sizes.key(row))
  hflush(notes_key(row))
  local fresh, size = written(row, entries)
  if size then
    if size.signals > SIGNALS_MAX or size.steps > STEPS_MAX or size.bytes > STEPS_BYTES_MAX then
      return {size.steps, size.signals, size.bytes}
    end
    for field, text in pairs(fresh) do
      hput(sizes.key(row), field, text)
      if string.sub(field, 1, 1) == 'j' then joins_of[row.seq .. string.sub(field, 2)] = nil end
    end
    if next(fresh) then
      sizes.save(row, size)
      mark(row, JOURNAL)
    end
  end
  write_notes(row, entries)
  row.dirty = true
end

-- Whether a signal has come (signal:<name>), or a join is complete (join:<name>).
function journal.has(row, awaits)
  local kind, name = string.match(awaits, '^(%a+):(.*)$')
  if kind == 'join' then
    local join = journal.join(row, name)
    return join ~= nil and join.left == 0
  end
  return journal.has_signal(row, name)
end

function journal.has_signal(row, name)
  if not has(row, JOURNAL) then return false end
  hflush(sizes.key(row))
  return call('HEXISTS', sizes.key(row), 'g' .. name) == 1
end

-- Gives a new job fields and values of another.
function journal.copy(row, flat)
  if #flat == 0 then return end
  base.send('HSET', sizes.key(row), flat)
  sizes.save(row, sizes.counted(row))
  mark(row, JOURNAL)
end

-- Deletes all that belongs to a job which is deleted, however much it is.
function journal.drop(row)
  local names = {}
  if has(row, JOURNAL) then names[#names + 1] = sizes.key(row) end
  if has(row, NOTES) then names[#names + 1] = notes_key(row) end
  for _, name in ipairs(names) do hflush(name) end
  if #names > 0 then call('UNLINK', unpack(names)) end
  if has(row, PARENTS) then
    hput(PARENTS_OF, rows.name_of(row), false)
    parents_of[rows.name_of(row)] = false
  end
  -- Those of a job that was deleted too early are still to be followed.
  local are_followed = row.state >= ENDED and not has(row, FOLLOWING)
  if has(row, EDGES) and are_followed and not has(row, ROW_EDGES) then edges.drop(row.seq) end
end

-- -- reading --------------------------------------------------------------------------------------

local UNREADABLE = {'?', ''} -- An entry of no kind: who takes it for granted must not go on.

-- A hash as a flat list. It is not empty, since the flag of the row says that there are entries.
local function all_of(name)
  local flat = redis.pcall('HGETALL', name)
  return not flat.err and #flat > 0 and flat or UNREADABLE
end

-- The journal of a job as journal.py reads it. `whole_of`: however large it is, with errors, log
-- and edges.
function journal.answer(row, whole_of)
  local omitted = whole_of and 0 or sizes.left_out(row)
  if omitted > 0 then return {false, false, false, false, omitted} end
  local join = journal.join(row, '') or false
  return {
    join and {join.total, join.left, join.failed, whole(row.created)},
    has(row, JOURNAL) and all_of(sizes.key(row)),
    whole_of and has(row, NOTES) and all_of(notes_key(row)),
    whole_of and has(row, EDGES) and edges.parts(row),
    0,
  }
end
