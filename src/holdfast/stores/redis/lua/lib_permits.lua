-- Permits: how a shard of several starts jobs under limits of the platform, and what it tells the home
-- (lib_ledger).
--
--   epochs   hash  scope -> the last permit that this shard knows

local EPOCHS = key('epochs')
local known, told = {}, {}
local allowed, otherwise = {}, 0 -- What may start in this call, by scope, and in others.

function permits.allow(rooms, others) allowed, otherwise = rooms, others end

-- How many jobs of a scope may start in this call.
function permits.left(scope) return allowed[scope] or otherwise end

-- Counts jobs that start, or end (then the number is negative).
function permits.count(scope, number)
  told[scope] = true
  if number > 0 then allowed[scope] = math.max(0, permits.left(scope) - number) end
end

-- Has the answer of this call tell of a scope.
function permits.tell(scope) told[scope] = true end

-- The last permit for a scope that this shard knows. Those before it start nothing any more.
local function epoch_of(scope)
  if known[scope] == nil then known[scope] = tonumber(call('HGET', EPOCHS, scope) or 0) end
  return known[scope]
end

local function set_epoch(scope, epoch)
  told[scope] = true
  if epoch <= epoch_of(scope) then return false end
  known[scope] = epoch
  call('HSET', EPOCHS, scope, whole(epoch))
  return true
end

-- Uses a permit: so many jobs of a scope may start in this call, unless a later one came before it.
function permits.use(scope, number, epoch)
  local is_new = platform.running(scope) and set_epoch(scope, epoch)
  allowed[scope] = is_new and number or 0
end

-- Has no earlier permit for a scope start anything. From now on it is counted.
function permits.fence(scope, epoch)
  if not platform.running(scope) then platform.set_counted(scope, true) end
  set_epoch(scope, epoch)
end

-- Forgets a scope that has no settings, unless it was given some after this epoch.
function permits.drop(scope, epoch)
  if not platform.running(scope) or epoch_of(scope) > epoch then return end
  platform.set_counted(scope, false)
  call('HDEL', EPOCHS, scope)
  known[scope] = 0
  platform.free(scope)
end

-- What this call tells the home: {scope, running jobs, the last permit known} of each scope in which
-- it changed something. Called after the changes.
function permits.report()
  local found = {}
  for scope in pairs(told) do
    local number = platform.running(scope)
    if number then found[#found + 1] = {scope, number, epoch_of(scope)} end
  end
  return found
end
