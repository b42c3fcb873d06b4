-- The base of every script: its arguments, the clock, and the numbers that a shard gives out.
--
-- KEYS[1] is the hash tag of the shard. Every key name starts with it, so all keys are in one slot.
-- KEYS[2] is the key of `heads`. It is passed so that a server which holds only a part of the slot
-- (while the slot migrates) refuses the call.
-- ARGV[1] is the control (see `Shards._control`): the caller's instant or -1, the number of shards,
-- the shard, whether events are kept, the base of the sequences or -1, and the channel of hints.
-- ARGV[2] holds the arguments of the verb, in msgpack.
--
-- Names in capitals that no Lua file defines are constants: scripts.py replaces them by their
-- values. Numbers are doubles, exact below 2^53. `..` would round them, so `whole` and `wide`
-- format them.

local call = redis.call
local TAG = KEYS[1]
local GIVEN_NOW, SHARDS, SHARD, EVENTS, BASE, CHANNEL_AT = struct.unpack('>dI4I4Bd', ARGV[1])
local ARGS = cmsgpack.unpack(ARGV[2])

local function key(name) return TAG .. ':' .. name end
local function whole(number) return string.format('%d', number) end
local function wide(number) return string.format('%016d', number) end

local TIME = call('TIME')
local SERVER_NOW = TIME[1] * 1000000 + TIME[2]
EVENTS = EVENTS == 1

-- Heads: the last sequence, event cursor, turn of a tenant and visit of a line that were given out;
-- the last pruned cursor; the number of settings that concern tenants (their scopes, tiers, and 1
-- while claims look again at tiers), of scopes of the platform that have settings, and of tiers; how
-- often a tier changed; whether claims look again at tenants of changed tiers; whether anything may
-- wait at limits of the platform; how many tenants have ended jobs whose edges are not followed yet;
-- the latest instant of a clock other than the server's; and the
-- format. The first four follow the server's time, so the numbers of several shards are comparable
-- and never equal.
--
-- A script does not touch a shard of another format.

local heads = {seq = 0, cursor = 0, turn = 0, visit = 0, floor = 0, rules = 0, platform = 0,
  tiers = 0, changes = 0, looks = 0, aside = 0, releasing = 0, now = 0, format = 0}
local heads_changed = {seq = nil, cursor = nil, turn = nil, visit = nil}
do
  -- All fields at once: Redis finds each single field by reading all those before it.
  local found = call('HGETALL', KEYS[2])
  for at = 1, #found, 2 do heads[found[at]] = tonumber(found[at + 1]) or 0 end
  if heads.format ~= LAYOUT and not MIGRATES then
    -- The first write to an empty shard stores the format. Format 2 did not store it.
    local used = math.max(heads.seq, heads.cursor, heads.turn, heads.floor, heads.rules, heads.now)
    local format = heads.format > 0 and heads.format or used > 0 and 2
    if format then return redis.error_reply('WRONGFORMAT ' .. whole(format)) end
    heads.format, heads_changed.format = LAYOUT, true
  end
end

-- A caller may have read its clock before an earlier call did: time never goes back.
local NOW = GIVEN_NOW >= 0 and math.max(GIVEN_NOW, heads.now) or SERVER_NOW

local function slot_of(instant) return math.floor(instant / SHARDS) * SHARDS + SHARD end

-- The position of the current item in the caller's batch, if the batch covers several shards.
base.position = 0

local NOW_SLOT = slot_of(SERVER_NOW)
local BASE_SLOT = BASE >= 0 and slot_of(BASE) or NOW_SLOT

-- The next sequence, cursor, turn or visit, without giving it out.
function base.next(name)
  local least = name == 'cursor' and NOW_SLOT or BASE_SLOT + base.position * SHARDS
  local last = heads[name]
  local nearest = last - last % SHARDS + SHARD
  if nearest <= last then nearest = nearest + SHARDS end
  return math.max(nearest, least)
end

function base.set_head(name, number)
  heads[name] = number
  heads_changed[name] = true
end

function base.tick(name)
  local number = base.next(name)
  base.set_head(name, number)
  return number
end

function base.save_heads()
  if GIVEN_NOW >= 0 and NOW > heads.now then base.set_head('now', NOW) end
  if heads_changed.format and next(heads_changed, next(heads_changed)) == nil then return end
  local values = {}
  for name in pairs(heads_changed) do
    values[#values + 1] = name
    values[#values + 1] = whole(heads[name])
  end
  if #values > 0 then call('HSET', KEYS[2], unpack(values)) end
end

-- Lets a script write although the server is out of memory. Redis checks memory only before the
-- first write of a script, and this write needs none. Enqueue does not call it, so it is refused.
function base.insist() call('ZREM', key('due'), '') end
