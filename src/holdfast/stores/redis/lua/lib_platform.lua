-- The platform's scopes: the whole store, a queue or a job type over all tenants. Their settings,
-- their room, and how many jobs run in each that has settings. lib_aside keeps what waits at them.
--
--   rules    hash  scope -> its settings (beside those of tenants, see lib_limits)
--   running  hash  scope -> how many jobs of it run, for scopes with settings
--   ready    zset  scopes that may have room by now, and may have something waiting
--
--
-- The name of such a scope has an empty tenant. Without settings of the platform no script loads
-- this library: `is_limited` (lib_writes) looks at two of the heads, which every script reads.
--
-- With one shard, the settings and the counts here say how much room there is. Over several shards
-- the home of the platform (shard 0) says so: lib_ledger. There a job starts by a permit only
-- (lib_permits), and a shard needs to know which scopes have settings, but not what these are.

local WALK = 1000
local FEW = 64 -- Scopes with settings that are read together.
local NOTHING = {}
local RULES, RUNNING, READY = key('rules'), key('running'), key('ready')
local IS_SHARDED = SHARDS > 1

local settings, running, changed, freed, looked, limited = {}, {}, {}, {}, {}, {}
local all_known = false -- Whether `running` has all scopes with settings.
local has_parts -- Whether a queue or a type has settings; nil until it is asked for.

-- How many jobs of a scope run; false if it has no settings.
function platform.running(scope)
  if running[scope] == nil then
    running[scope] = not all_known and tonumber(call('HGET', RUNNING, scope)) or false
  end
  return running[scope]
end

-- Reads all scopes with settings, if they are few. Returns whether it did.
local function know_all()
  if all_known or heads.platform > FEW then return all_known end
  local found = call('HGETALL', RUNNING)
  for at = 1, #found, 2 do
    if running[found[at]] == nil then running[found[at]] = tonumber(found[at + 1]) end
  end
  all_known = true
  return true
end

-- Whether a queue or a type may have settings.
function platform.has_parts()
  if has_parts == nil then
    has_parts = not know_all()
    for scope, number in pairs(running) do
      has_parts = has_parts or number and scope ~= WHOLE_STORE
    end
  end
  return has_parts
end

-- The scopes of the platform that a job is in.
function platform.scopes(row)
  return {WHOLE_STORE, 'q\0\0' .. row.queue, 'y\0\0' .. row.type}
end

-- Those of them that have settings.
function platform.limited(row)
  local of_queue = limited[row.queue]
  if not of_queue then
    of_queue = {}
    limited[row.queue] = of_queue
  end
  local found = of_queue[row.type]
  if not found then
    know_all()
    found = {}
    for _, scope in ipairs(platform.scopes(row)) do
      if platform.running(scope) then found[#found + 1] = scope end
    end
    of_queue[row.type] = found
  end
  return found
end

-- Whether a type may have settings.
function platform.has_types()
  if not know_all() then return true end
  for scope, number in pairs(running) do
    if number and string.sub(scope, 1, 1) == 'y' then return true end
  end
  return false
end

-- The settings of a scope.
function platform.of(scope)
  local found = settings[scope]
  if not found then
    local text = platform.running(scope) and call('HGET', RULES, scope)
    found = text and cjson.decode(text) or NOTHING
    settings[scope] = found
  end
  return found
end

-- -- running jobs ---------------------------------------------------------------------------------

local function set_running(scope, number)
  running[scope] = number
  changed[scope] = true
end

-- Has the next claim look at what waits at a scope, and wakes those who wait if it has room at the
-- end of the call.
function platform.free(scope)
  freed[scope] = true
  if scope ~= WHOLE_STORE and heads.aside > 0 then zput(READY, scope, 0) end
end

-- Counts a job that starts (1) or ends (-1) in those of its scopes that have settings.
function platform.count(row, number)
  local found = platform.limited(row)
  for at = 1, #found do
    local scope = found[at]
    local before = running[scope]
    if IS_SHARDED then
      permits.count(scope, number)
    elseif number < 0 and not freed[scope] and before >= (platform.of(scope).max_running or UNLIMITED)
    then
      platform.free(scope)
    end
    running[scope] = before + number
    changed[scope] = true
  end
end

-- Calls `visit` with each running job.
local function each_running(visit)
  for _, name in ipairs({key('held'), key('spent')}) do
    local from = 0
    zflush(name)
    repeat
      local seqs = call('ZRANGE', name, from, from + WALK - 1)
      for _, row in ipairs(rows.list(seqs)) do visit(row) end
      from = from + WALK
    until #seqs < WALK
  end
end

local function running_by_scope()
  local sums = {}
  each_running(function(row)
    for _, scope in ipairs(platform.scopes(row)) do sums[scope] = (sums[scope] or 0) + 1 end
  end)
  return sums
end

-- Counts the running jobs of all scopes with settings anew.
function platform.recount()
  local sums = running_by_scope()
  for _, scope in ipairs(call('HKEYS', RUNNING)) do
    if platform.running(scope) ~= (sums[scope] or 0) then
      set_running(scope, sums[scope] or 0)
      platform.free(scope)
    end
  end
end

-- -- room -----------------------------------------------------------------------------------------

-- How many jobs of a scope may start now. Changes nothing.
function platform.room_now(scope)
  if IS_SHARDED then
    return platform.running(scope) and permits.left(scope) or UNLIMITED
  end
  local limit = platform.of(scope)
  if limit == NOTHING then return UNLIMITED end
  if limit.paused then return 0 end
  local room = UNLIMITED
  if limit.max_running then room = limit.max_running - (platform.running(scope) or 0) end
  if limit.rate then room = math.min(room, limits.tokens(scope, limit.rate)) end
  return math.max(0, room)
end

-- Whether the whole store has no room, and time alone does not make any: then nobody need wake.
function platform.is_full()
  if IS_SHARDED then return false end
  if platform.room_now(WHOLE_STORE) > 0 then return false end
  return not limits.token_at(WHOLE_STORE, platform.of(WHOLE_STORE).rate)
end

-- How many jobs of a scope may start now. If there is no room, the scope is looked at again when its
-- rate gives it a token.
function platform.room(scope)
  local room = platform.room_now(scope)
  if room == 0 and not IS_SHARDED and not looked[scope] then
    looked[scope] = true
    local at = limits.token_at(scope, platform.of(scope).rate)
    if at then limits.recheck_at(at, scope) end
  end
  return room
end

-- Takes the tokens of jobs that start, from one scope.
function platform.take_tokens(scope, number)
  if IS_SHARDED then return end
  limits.take_token(scope, platform.of(scope).rate, number)
end

-- -- changes --------------------------------------------------------------------------------------

local all_running -- By scope, counted once for all settings of the call.

-- Has a scope counted, or not any more.
function platform.set_counted(scope, is_counted)
  base.set_head('platform', heads.platform + (is_counted and 1 or -1))
  if is_counted then all_running = all_running or running_by_scope() end
  set_running(scope, is_counted and (all_running[scope] or 0))
  limited, has_parts = {}, nil
end

-- Applies new settings of a scope, as JSON; nil if they were deleted.
function platform.configure(kind, part, text)
  local scope = counts.name(kind, '', part)
  local had = call('HEXISTS', RULES, scope) == 1
  if text then call('HSET', RULES, scope, text) else call('HDEL', RULES, scope) end
  settings[scope] = text and cjson.decode(text) or NOTHING
  if not IS_SHARDED and (text ~= nil) ~= had then
    platform.set_counted(scope, text ~= nil)
  end
  limits.cap_bucket(scope, settings[scope].rate)
  if IS_SHARDED then return end
  platform.free(scope)
  platform.room(scope)
end

-- Wakes those who wait for room in a scope.
local function wake(scope)
  if scope ~= WHOLE_STORE then
    aside.wake(scope)
    return
  end
  zflush(key('tenants'))
  zflush(READY)
  if call('EXISTS', key('tenants'), READY) > 0 then base.wake_all() end
end

function platform.save()
  for scope in pairs(freed) do
    if platform.room(scope) > 0 then wake(scope) end
  end
  for scope in pairs(changed) do
    hput(RUNNING, scope, running[scope] and whole(running[scope]))
  end
end
