-- What every script stands on: its arguments, the time, the heads, and writes that are gathered.
--
-- KEYS[1] is the tag of the shard; every other key is made from it, so all are in one slot. KEYS[2]
-- is only named so that a server that has not all of the slot refuses.
-- ARGV[1] is {now or nil, shards, shard, events, base or nil, channel, again}; ARGV[2] the verb's
-- own. `again`: this call may have been made before, and its answer lost.
--
-- Numbers are doubles: exact below 2^53. They are never joined to text with `..`, which would
-- round them; `whole` and `wide` write them out.

local call = redis.call
local TAG = KEYS[1]
local CONTROL = cmsgpack.unpack(ARGV[1])
local ARGS = cmsgpack.unpack(ARGV[2])

local core, rows, counts, gates, groups, lines, jobs, log = {}, {}, {}, {}, {}, {}, {}, {}
local plain, repair, rules, take, walk = {settle = function() end}, {}, {}, {seqs = {}, texts = {}, rows = {}, count = 0}, {}

local WAITING, SCHEDULED, ENQUEUED, PROCESSING, RETRYING = 1, 2, 3, 4, 5
local COMPLETED, FAILED, CANCELED = 6, 7, 8
local ENDED = COMPLETED -- From here on a state is final.

local UNLIMITED = 2 ^ 52
local BYTES = 9 -- Place in a scope's counts, after the states.
local FACT_SIZE = 10 -- Values of a fact; all facts of an entry are one flat list.
local ARGS_MAX = 4000 -- Values of one command; Lua's stack holds 8000.

local function key(name) return TAG .. ':' .. name end
local function whole(number) return string.format('%.0f', number) end
local function wide(number) return string.format('%016.0f', number) end

local ROWS, BODIES, NAMES, TURNS = key('rows'), key('bodies'), key('names'), key('turns')
local HELD, SPENT, DUE, DONE = key('held'), key('spent'), key('due'), key('done')
local TTL, LATE_ONES, TAILS = key('ttl'), key('late'), key('tails')

local TIME = call('TIME')
local SERVER_NOW = TIME[1] * 1000000 + TIME[2]
local SHARDS, SHARD, EVENTS, CHANNEL = CONTROL[2], CONTROL[3], CONTROL[4], CONTROL[6]

-- -- heads ----------------------------------------------------------------------------------------
-- The last sequence, cursor and turn given out, the last pruned cursor, how many scopes have
-- settings, and the latest instant of a clock that is not the server's. Each of the first three grows by the server's time, so that those of several shards
-- compare: about in the order in which they were given, and never the same.

local HEADS = {'seq', 'cursor', 'turn', 'floor', 'rules', 'now'}
local heads, heads_changed, gates_changed = {}, false, false
do
  local found = call('HMGET', key('heads'), unpack(HEADS))
  for index, name in ipairs(HEADS) do heads[name] = tonumber(found[index] or '0') end
end

-- A caller's clock may have been read before that of a call that came here first.
local NOW = CONTROL[1] and math.max(CONTROL[1], heads.now) or SERVER_NOW

-- Whether anything is set for a tenant, its queues or its groups, or was before this call.
local function ruled(tenant)
  return (heads.rules > 0 or gates_changed) and gates.ruled(tenant)
end

local function slot_of(instant) return math.floor(instant / SHARDS) * SHARDS + SHARD end

-- Where the item under way stands in the caller's batch, if that is spread over several shards.
core.place = 0

local NOW_SLOT = slot_of(SERVER_NOW)
local BASE_SLOT = CONTROL[5] and slot_of(CONTROL[5]) or NOW_SLOT

function core.tick(name)
  local base = name == 'cursor' and NOW_SLOT or BASE_SLOT + core.place * SHARDS
  local last = heads[name]
  local nearest = last - last % SHARDS + SHARD
  while nearest <= last do nearest = nearest + SHARDS end
  local number = math.max(nearest, base)
  heads[name] = number
  heads_changed = true
  return number
end

function core.set_head(name, number)
  heads[name] = number
  heads_changed = true
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

-- The values of these fields, in order; false where there is none.
function core.values(name, fields)
  local count, found = #fields, {}
  if count <= ARGS_MAX then
    if count == 0 then return found end
    return call('HMGET', name, unpack(fields))
  end
  for first = 1, count, ARGS_MAX do
    local last = math.min(first + ARGS_MAX - 1, count)
    local part = call('HMGET', name, unpack(fields, first, last))
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

-- Lets a script write although the server is out of memory: what it writes first is no growth.
-- Redis asks for memory only before the first write. Only enqueue is refused so, whole.
function core.insist() call('ZREM', DUE, '') end

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

function core.over(tenant, id)
  ended_count = ended_count + 1
  if ended_count <= HINTS_MAX then ended[ended_count] = {tenant, id} end
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
  if CONTROL[1] and NOW > heads.now then core.set_head('now', NOW) end
  if heads_changed then
    local values = {}
    for _, name in ipairs(HEADS) do
      values[#values + 1] = name
      values[#values + 1] = whole(heads[name])
    end
    call('HSET', key('heads'), unpack(values))
  end
  publish()
end

-- The same of words as of keys of a table.
local function set_of(list)
  if not list then return nil end
  local set = {}
  for _, word in ipairs(list) do set[word] = true end
  return set
end
