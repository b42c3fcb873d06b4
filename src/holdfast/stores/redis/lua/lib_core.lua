-- What the parts of the library share: writes that are gathered, hints, and the end of a step.

local rows, counts, gates, groups, lines, jobs = {}, {}, {}, {}, {}, {}
local packs, pieces, repair, rules, walk = {}, {}, {}, {}, {}
local plain = {settle = function() end}
local take = {seqs = {}, texts = {}, bodies = {}, rows = {}, numbers = {}, told = 0, count = 0}

local DONE, LATE_ONES = key('done'), key('late')

local gates_changed = false

-- Whether anything is set for a tenant, its queues or its groups, or was before this call.
local function ruled(tenant)
  return (heads.rules > 0 or gates_changed) and gates.ruled(tenant)
end

-- -- gathered writes ------------------------------------------------------------------------------
-- Of each member the last word counts. Who reads a sorted set or hash settles it first.

local pending_sets, pending_hashes = {}, {}

local function zput(name, member, score)
  local set = pending_sets[name]
  if not set then
    set = {}
    pending_sets[name] = set
  end
  set[member] = score
end

local function zdrop(name, member) zput(name, member, false) end

local function hput(name, field, value)
  local hash = pending_hashes[name]
  if not hash then
    hash = {}
    pending_hashes[name] = hash
  end
  hash[field] = value
end

local function hdrop(name, field) hput(name, field, false) end

-- Calls a command with as many values as there are, in parts.
function core.each_part(command, name, values)
  local count = #values
  if count == 0 then return end
  if count <= ARGS_MAX then
    call(command, name, unpack(values))
    return
  end
  for first = 1, count, ARGS_MAX do
    call(command, name, unpack(values, first, math.min(first + ARGS_MAX - 1, count)))
  end
end

-- The values of these fields, in order; false where there is none. `command` reads many of one key.
function core.values(name, fields, command)
  local count, found = #fields, {}
  command = command or 'HMGET'
  if count <= ARGS_MAX then
    if count == 0 then return found end
    return call(command, name, unpack(fields))
  end
  for first = 1, count, ARGS_MAX do
    local last = math.min(first + ARGS_MAX - 1, count)
    local part = call(command, name, unpack(fields, first, last))
    for index = 1, last - first + 1 do found[first + index - 1] = part[index] end
  end
  return found
end

local function zsettle(name)
  local set = pending_sets[name]
  if not set then return end
  pending_sets[name] = nil
  local added, dropped, a, d = {}, {}, 0, 0
  local last, text -- Many have the same score, and writing one out costs more than adding it.
  for member, score in pairs(set) do
    if score then
      if score ~= last then
        last = score
        text = type(score) == 'number' and whole(score) or score
      end
      added[a + 1], added[a + 2] = text, member
      a = a + 2
    else
      d = d + 1
      dropped[d] = member
    end
  end
  core.each_part('ZADD', name, added)
  core.each_part('ZREM', name, dropped)
end

local function hsettle(name)
  local hash = pending_hashes[name]
  if not hash then return end
  pending_hashes[name] = nil
  local added, dropped, a, d = {}, {}, 0, 0
  for field, value in pairs(hash) do
    if value then
      added[a + 1], added[a + 2] = field, value
      a = a + 2
    else
      d = d + 1
      dropped[d] = field
    end
  end
  core.each_part('HSET', name, added)
  core.each_part('HDEL', name, dropped)
end

-- -- hints for sleepers ---------------------------------------------------------------------------

local HINTS_MAX = 64
local woken, woken_count = {}, 0
local ended, ended_count = {}, 0

function core.wake(line)
  if not woken[line] then
    woken[line] = true
    woken_count = woken_count + 1
  end
end

-- Has all sleepers look.
function core.wake_all() woken_count = HINTS_MAX + 1 end

function core.over(tenant, id)
  ended_count = ended_count + 1
  if ended_count <= HINTS_MAX then ended[ended_count] = {tenant, id} end
end

-- The same of many, whose ids are in one text.
function core.all_over(tenant, ids, width)
  if ended_count + #ids / width > HINTS_MAX then
    ended_count = HINTS_MAX + 1
    return
  end
  for at = 1, #ids, width do core.over(tenant, string.sub(ids, at, at + width - 1)) end
end

local function publish()
  if woken_count == 0 and ended_count == 0 then return end
  local names = {}
  if woken_count <= HINTS_MAX then
    for line in pairs(woken) do names[#names + 1] = line end
  end
  call('PUBLISH', CHANNEL, cmsgpack.pack({
    woken_count > HINTS_MAX, names, ended_count > HINTS_MAX, ended_count > HINTS_MAX and {} or ended,
  }))
end

-- -- the end of a step ----------------------------------------------------------------------------

-- Lets go on what has room now, then writes all that was gathered. The last call of a script.
function core.finish()
  plain.settle()
  groups.open_up()
  lines.open_up()
  gates.save()
  rows.save()
  counts.save()
  log.save()
  for name in pairs(pending_hashes) do hsettle(name) end
  for name in pairs(pending_sets) do zsettle(name) end
  core.save_heads()
  publish()
end

-- The same of words as of keys of a table.
local function set_of(list)
  if not list then return nil end
  local set = {}
  for _, word in ipairs(list) do set[word] = true end
  return set
end
