-- What every script stands on: its arguments, the time and the heads.
--
-- KEYS[1] is the tag of the shard; every other key is made from it, so all are in one slot. KEYS[2],
-- that of the heads, is named so that a server that has not all of the slot refuses.
-- ARGV[1] is {now or nil, shards, shard, events, base or nil, channel, again}; ARGV[2] the verb's
-- own. `again`: this call may have been made before, and its answer lost.
--
-- Numbers are doubles: exact below 2^53. They are never joined to text with `..`, which would
-- round them; `whole` and `wide` write them out. All are whole, and `%d` is 0.4 of the instructions
-- of `%.0f` (callgrind).

local call = redis.call
local TAG = KEYS[1]
local CONTROL = cmsgpack.unpack(ARGV[1])
local ARGS = cmsgpack.unpack(ARGV[2])

local core = {}

local WAITING, SCHEDULED, ENQUEUED, PROCESSING, RETRYING = 1, 2, 3, 4, 5
local COMPLETED, FAILED, CANCELED = 6, 7, 8
local ENDED = COMPLETED -- From here on a state is final.

local UNLIMITED = 2 ^ 52
local BYTES = 9 -- Place in a scope's counts, after the states.
local FACT_SIZE = 10 -- Values of a fact; all facts of an entry are one flat list.
local ARGS_MAX = 4000 -- Values of one command; Lua's stack holds 8000.

local function key(name) return TAG .. ':' .. name end
local function whole(number) return string.format('%d', number) end
local function wide(number) return string.format('%016d', number) end

local ROWS, BODIES, NAMES = key('rows'), key('bodies'), key('names')
local TENANTS = key('tenants') -- Those that can be claimed from, by turn.
local HELD, SPENT, DUE, TTL = key('held'), key('spent'), key('due'), key('ttl')
local TAILS = key('tails')

-- What a claim is remembered by, so that it leases nothing more when it is repeated.
local function claim_key(nonce) return key('claim:' .. nonce) end

local TIME = call('TIME')
local SERVER_NOW = TIME[1] * 1000000 + TIME[2]
local SHARDS, SHARD, EVENTS, CHANNEL = CONTROL[2], CONTROL[3], CONTROL[4], CONTROL[6]

-- -- heads ----------------------------------------------------------------------------------------
-- The last sequence, cursor, turn of a tenant and visit of a line given out, the last pruned cursor,
-- how many scopes have settings, the latest instant of a clock that is not the server's, 1 if there
-- ever was a pack, and the format. Each of the first four grows by the server's time, so that those
-- of several shards compare: about in the order in which they were given, and never the same.
--
-- A shard of another format than these scripts were written for is not touched.

local heads, heads_changed = nil, {}
do
  local found = call('HMGET', KEYS[2], 'seq', 'cursor', 'turn', 'floor', 'rules', 'now', 'packs',
    'visit', 'format')
  local format = found[9]
  if format ~= LAYOUT and not MIGRATES then
    -- The first to write to an empty shard gives it its format; older ones did not say so.
    for index = 1, 7 do format = format or found[index] and '2' end
    if format then return redis.error_reply('WRONGFORMAT ' .. format) end
    heads_changed.format = true
  end
  heads = {
    seq = tonumber(found[1] or '0'), cursor = tonumber(found[2] or '0'),
    turn = tonumber(found[3] or '0'), floor = tonumber(found[4] or '0'),
    rules = tonumber(found[5] or '0'), now = tonumber(found[6] or '0'),
    packs = tonumber(found[7] or '0'), visit = tonumber(found[8] or '0'), format = tonumber(LAYOUT),
  }
end

-- A caller's clock may have been read before that of a call that came here first.
local NOW = CONTROL[1] and math.max(CONTROL[1], heads.now) or SERVER_NOW

local function slot_of(instant) return math.floor(instant / SHARDS) * SHARDS + SHARD end

-- Where the item under way stands in the caller's batch, if that is spread over several shards.
core.place = 0

local NOW_SLOT = slot_of(SERVER_NOW)
local BASE_SLOT = CONTROL[5] and slot_of(CONTROL[5]) or NOW_SLOT

-- The next sequence, cursor or turn.
function core.next(name)
  local base = name == 'cursor' and NOW_SLOT or BASE_SLOT + core.place * SHARDS
  local last = heads[name]
  local nearest = last - last % SHARDS + SHARD
  while nearest <= last do nearest = nearest + SHARDS end
  return math.max(nearest, base)
end

function core.set_head(name, number)
  heads[name] = number
  heads_changed[name] = true
end

function core.tick(name)
  local number = core.next(name)
  core.set_head(name, number)
  return number
end

function core.save_heads()
  if CONTROL[1] and NOW > heads.now then core.set_head('now', NOW) end
  if heads_changed.format and next(heads_changed, next(heads_changed)) == nil then return end
  local values = {}
  for name in pairs(heads_changed) do
    values[#values + 1] = name
    values[#values + 1] = whole(heads[name])
  end
  if #values > 0 then call('HSET', KEYS[2], unpack(values)) end
end

-- Lets a script write although the server is out of memory: what it writes first is no growth.
-- Redis asks for memory only before the first write. Only enqueue is refused so, whole.
function core.insist() call('ZREM', DUE, '') end
