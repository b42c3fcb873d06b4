-- Values of a job that most jobs have none of (tags, error, result, progress), and rows as scripts
-- return them.

-- Optional values are in hashes of their own; flags of the row say which a job has.
local OPTIONAL = {[ERROR] = 'errors', [RESULT] = 'results', [PROGRESS] = 'progress',
  [REPLAYED] = 'replays', [AWAITS] = 'awaits'}

local has = rows.has

-- Stores an optional value of a row; nil deletes it.
function values.keep(row, flag, value)
  if value then
    rows.mark(row, flag)
    hput(key(OPTIONAL[flag]), row.seq, value)
  elseif rows.has(row, flag) then
    rows.unmark(row, flag)
    hput(key(OPTIONAL[flag]), row.seq, false)
  end
  row.dirty = true
end

-- An optional value of a row; false if it has none.
function values.kept(row, flag)
  if not rows.has(row, flag) then return false end
  local name = key(OPTIONAL[flag])
  hflush(name)
  return call('HGET', name, row.seq)
end

-- Deletes all optional values of a row, and what else belongs to its job.
function values.drop(row)
  for flag in pairs(OPTIONAL) do values.keep(row, flag, nil) end
  if row.flags >= JOURNAL then journal.drop(row) end
end

-- The tags and the origin of a job, nil where it has none or they are damaged.
function values.more(row)
  local fixed = rows.fixed_of(row)
  local parts = {struct.unpack(ROW_FIXED, fixed)}
  local at = parts[#parts]
  if has(row, ROW_EDGES) then at = at + 2 + #(rows.edges(row) or '') end
  if at > #fixed then return nil, nil end
  local fine, found = pcall(cmsgpack.unpack, string.sub(fixed, at))
  if not fine or type(found) ~= 'table' then return nil, nil end
  return found[1] or nil, found[2] or nil
end

-- How long a row holds its key, in microseconds; -1 until it ends.
function values.key_us(row)
  local _, _, _, key_us = struct.unpack(ROW_FIXED, rows.fixed_of(row))
  return key_us
end

-- A copy of a fixed part for a replay: another id, no key, no edges, its origin recorded. `size`:
-- the bytes of its payload.
function values.copied(row, id, size)
  local tags, group = values.more(row), row.group or ''
  return struct.pack(ROW_FIXED, row.max_attempts, row.keep, row.keep_failed, values.key_us(row),
    size,
    #row.tenant, row.tenant, #id, id, #row.queue, row.queue, #row.type, row.type,
    #group, group, 0, '') .. cmsgpack.pack({tags or false, row.id})
end

-- The optional values of a row and its journal, false if it has none. A lease needs neither edges
-- nor what is said for people.
local function optional(row, journals)
  local flags = row.flags
  local kept = flags % JOURNAL >= ERROR
  local asked = journals == 2 and flags >= JOURNAL
    or journals and (has(row, JOURNAL) or has(row, PARENTS))
  if not kept and not asked then return false end
  return {
    kept and values.kept(row, ERROR), kept and values.kept(row, RESULT),
    kept and values.kept(row, PROGRESS), kept and values.kept(row, REPLAYED),
    kept and values.kept(row, AWAITS), asked and journal.answer(row, journals == 2),
  }
end

-- The rows as scripts return them: sequence, row, body, optional values or false; flat. To be
-- called after base.finish, when all rows are packed. `journals`: also what leases bring back of
-- their journals (1), or all of these (2).
function values.answers(list, journals)
  local seqs, flat, with_parents = {}, {}, {}
  for at, row in ipairs(list) do
    seqs[at] = row.seq
    if journals and has(row, PARENTS) then with_parents[#with_parents + 1] = rows.name_of(row) end
  end
  if #with_parents > 0 then journal.load_parents(with_parents) end
  local bodies = base.fetch('HMGET', key('bodies'), seqs)
  for at, row in ipairs(list) do
    local to = 4 * at
    flat[to - 3], flat[to - 2], flat[to - 1] = row.seq, row.text or rows.packed(row), bodies[at]
    flat[to] = row.flags >= ERROR and optional(row, journals)
  end
  return flat
end
