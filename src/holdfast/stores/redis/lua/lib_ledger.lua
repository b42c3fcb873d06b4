-- Ledger: of a store with several shards, how much of the platform's limits each shard may use. It
-- is kept at the home of the platform, shard 0, with the settings.
--
--   parts   hash  scope -> for each shard {running, epoch, permits, tokens}, in msgpack
--   frozen  hash  scope -> epoch, since when: its settings are being put, so it gives no permits
--
-- A permit lets one claim start a number of jobs of a scope in one shard. Permits are numbered by
-- epochs, over all scopes. A shard remembers the last epoch that it saw of a scope, and refuses a
-- permit that is not newer: so none is used twice, and none after the home has taken it back.
--
-- `running` is what the shard told with `epoch`; `permits` are those that the home gave after that
-- epoch, {epoch, number, since}. Whatever the shard does, no more jobs run there than both together:
-- each later permit starts at most its number, each earlier one is used up or refused, and all else
-- only ends jobs. So the limit holds as long as the sum over all shards is within it, and nothing
-- is lost by a crash: the next word of the shard corrects its part, and a permit that nobody used
-- goes when a later epoch is seen there.
--
-- `tokens` are those of a rate that permits took, {epoch, number, since}. They count as used until
-- the claim tells how many it used, or until PERMIT_US have passed and the shard has seen their
-- epoch: then all were.

local PERMIT_US = PERMIT_LIFE_US -- After that the permit of a claim that is not heard of is void.
local PARTS, FROZEN = key('parts'), key('frozen')

local known, dirty, rooms_before = {}, {}, {}

local function parts_of(scope)
  if not known[scope] then
    local text = call('HGET', PARTS, scope)
    known[scope] = text and cmsgpack.unpack(text) or {}
  end
  return known[scope]
end

local function sum(list)
  local total = 0
  for _, one in ipairs(list) do total = total + one[2] end
  return total
end

-- The epoch of the put that is under way at a scope, and since when; nil if none is.
local function frozen(scope)
  local text = call('HGET', FROZEN, scope)
  if not text then return nil end
  local epoch, since = string.match(text, '^(%d+) (%d+)$')
  return tonumber(epoch), tonumber(since)
end

function ledger.next_epoch()
  base.set_head('epoch', (heads.epoch or 0) + 1)
  return heads.epoch
end

-- How many jobs of a scope may start now, in all shards together.
function ledger.room(scope)
  local limit, granted, taken = platform.of(scope), 0, 0
  if limit.paused or frozen(scope) then return 0 end
  local parts = parts_of(scope)
  for shard = 1, SHARDS do
    local part = parts[shard]
    if not part then return 0 end
    granted, taken = granted + part[1] + sum(part[3]), taken + sum(part[4])
  end
  local room = UNLIMITED
  if limit.max_running then room = limit.max_running - granted end
  if limit.rate then room = math.min(room, limits.tokens(scope, limit.rate) - taken) end
  return math.max(0, room)
end

-- The parts of a scope, before this call changes them: room that it makes is told to sleepers.
local function changing(scope)
  if rooms_before[scope] == nil then rooms_before[scope] = ledger.room(scope) end
  dirty[scope] = true
  return parts_of(scope)
end

local function without(list, drops)
  local left = {}
  for _, one in ipairs(list) do
    if not drops(one) then left[#left + 1] = one end
  end
  return left
end

-- Takes what a shard told: so many jobs of a scope ran there when the last permit it knew was this.
function ledger.report(shard, scope, running, epoch)
  local part = parts_of(scope)[shard + 1]
  if not part or epoch < part[2] then return end
  if epoch == part[2] and running >= part[1] and #part[4] == 0 then return end
  changing(scope)
  -- Between two epochs jobs only end: of two reports the lower one is the later.
  part[1] = epoch > part[2] and running or math.min(running, part[1])
  part[2] = epoch
  part[3] = without(part[3], function(one) return one[1] <= epoch end)
  local rate, lost = platform.of(scope).rate, 0
  part[4] = without(part[4], function(one)
    local is_lost = one[1] <= epoch and one[3] + PERMIT_US <= NOW
    if is_lost then lost = lost + one[2] end
    return is_lost
  end)
  if lost > 0 then limits.take_token(scope, rate, lost) end
end

-- Gives a permit for up to so many jobs of a scope in a shard. Returns its number and its epoch.
function ledger.permit(shard, scope, number)
  local most = math.min(number, ledger.room(scope))
  if most <= 0 then return 0, 0 end
  local part, epoch = changing(scope)[shard + 1], ledger.next_epoch()
  local list = part[3]
  list[#list + 1] = {epoch, most, NOW}
  if platform.of(scope).rate then
    list = part[4]
    list[#list + 1] = {epoch, most, NOW}
  end
  return most, epoch
end

-- Ends a permit: its claim started so many jobs.
function ledger.settle(shard, scope, epoch, used)
  local part, rate = parts_of(scope)[shard + 1], platform.of(scope).rate
  if not part or #part[4] == 0 then return end
  changing(scope)
  part[4] = without(part[4], function(one)
    if one[1] == epoch then limits.take_token(scope, rate, used) end
    return one[1] == epoch
  end)
end

-- -- settings -------------------------------------------------------------------------------------

-- Stops all starts of a scope until the put with this epoch has ended.
function ledger.freeze(scope, epoch)
  call('HSET', FROZEN, scope, whole(epoch) .. ' ' .. whole(NOW))
end

-- Whether a scope has settings, or a put of some is under way.
function ledger.is_known(scope)
  return frozen(scope) ~= nil or call('HEXISTS', key('rules'), scope) == 1
end

function ledger.is_frozen(scope, epoch) return frozen(scope) == epoch end

-- Lets jobs start again if the put under way has not ended in time: it died.
function ledger.thaw(scope)
  local _, since = frozen(scope)
  if not since or since + PERMIT_US > NOW then return end
  call('HDEL', FROZEN, scope)
  base.wake_all()
end

-- Begins anew with what each shard told after the put had reached it: the running jobs. No earlier
-- permit starts anything any more, and what it may have started counts in the rate.
function ledger.restart(scope, running, epoch)
  local rate, taken, parts = platform.of(scope).rate, 0, parts_of(scope)
  for shard = 1, SHARDS do
    taken = taken + (parts[shard] and sum(parts[shard][4]) or 0)
    parts[shard] = {running[shard], epoch, {}, {}}
  end
  if taken > 0 then limits.take_token(scope, rate, taken) end
  dirty[scope] = true
end

-- Ends a put of settings.
function ledger.configured(scope, exists)
  call('HDEL', FROZEN, scope)
  dirty[scope] = exists
  if not exists then call('HDEL', PARTS, scope) end
  base.wake_all()
end

-- -- what claims ask ------------------------------------------------------------------------------

-- When a scope without room should be looked at again; nil if only who makes room can tell.
function ledger.room_at(scope)
  local limit, _, since = platform.of(scope), frozen(scope)
  if since then return since + PERMIT_US end
  if limit.paused then return nil end
  local first = limits.token_at(scope, limit.rate)
  if limit.max_running then -- The word that a job ended may be lost.
    first = math.min(first or NOW + PERMIT_US, NOW + PERMIT_US)
  end
  for _, part in ipairs(parts_of(scope)) do
    for _, list in ipairs({part[3], part[4]}) do
      for _, one in ipairs(list) do
        if not first or one[3] + PERMIT_US < first then first = one[3] + PERMIT_US end
      end
    end
  end
  return first
end

-- The shards that hold permits of a scope which are overdue, as {shard, epoch}.
function ledger.overdue(scope)
  local found = {}
  for shard, part in ipairs(parts_of(scope)) do
    local last = 0
    for _, list in ipairs({part[3], part[4]}) do
      for _, one in ipairs(list) do
        if one[3] + PERMIT_US <= NOW then last = math.max(last, one[1]) end
      end
    end
    if last > 0 then found[#found + 1] = {shard - 1, last} end
  end
  return found
end

-- What each shard told last, as {running, epoch}.
function ledger.told(scope)
  local found = {}
  for shard, part in ipairs(parts_of(scope)) do found[shard] = {part[1], part[2]} end
  return found
end

function ledger.save()
  for scope in pairs(dirty) do
    if dirty[scope] then call('HSET', PARTS, scope, cmsgpack.pack(parts_of(scope))) end
    if rooms_before[scope] == 0 and ledger.room(scope) > 0 then base.wake_all() end
  end
end
