-- Limits, rates, pauses and slots of scopes. The rules are a port of core/scope.py.
-- For a tenant without settings nothing is read.

local NOTHING = {}
local settings, buckets, of_tenants, of_groups = {}, {}, {}, {}

local function read_tenant(tenant)
  local found = call('HMGET', key('ruled'), tenant, tenant .. '\0')
  of_tenants[tenant] = found[1] ~= false and found[1] ~= '0'
  of_groups[tenant] = found[2] ~= false and found[2] ~= '0'
end

function limits.has_settings(tenant)
  if of_tenants[tenant] == nil then read_tenant(tenant) end
  return of_tenants[tenant]
end

-- The settings of a scope.
function limits.of(kind, tenant, part)
  if not has_settings(tenant) then return NOTHING end
  local scope = counts.name(kind, tenant, part)
  local found = settings[scope]
  if not found then
    local text = call('HGET', key('rules'), scope)
    found = text and cjson.decode(text) or NOTHING
    settings[scope] = found
  end
  return found
end

-- The settings of a group, as `scope.group_gate`: its own first, then the default of its queue.
function limits.group(tenant, group, queue)
  local own = limits.of('g', tenant, group)
  local default = limits.of('q', tenant, queue).groups or NOTHING
  local ordered = own.ordered
  if ordered == nil then ordered = default.ordered or false end
  local most = own.max_running or default.max_running
  if ordered then most = 1 end
  return {
    max_running = most, rate = own.rate or default.rate, ordered = ordered, paused = own.paused,
    slots_count = own.slots_count,
  }
end

-- Whether jobs of a group wait in the group, and enter their line only when it has room for them.
function limits.limits_group(tenant, group, queue)
  if not group or not has_settings(tenant) or not of_groups[tenant] then return false end
  local limit = limits.group(tenant, group, queue)
  return limit.max_running ~= nil or limit.rate ~= nil or limit.paused ~= nil
end

function limits.weight(tenant) return limits.of('t', tenant, '').weight or 1 end

-- -- rates: a token bucket is stored as the instant at which it will be full again ----------------

local function divided_up(number, by) return math.floor((number + by - 1) / by) end
local function price(rate) return divided_up(rate.per_us, rate.count) end

local function bucket(scope)
  local full_at = buckets[scope]
  if not full_at then
    full_at = tonumber(call('HGET', key('buckets'), scope) or '0')
    buckets[scope] = full_at
  end
  return full_at
end

-- How many tokens a scope has.
function limits.tokens(scope, rate)
  return rate.burst - divided_up(math.max(0, bucket(scope) - NOW), price(rate))
end

local changed_buckets = {}

local function set_bucket(scope, full_at)
  buckets[scope] = full_at
  changed_buckets[scope] = true
end

function limits.take_token(scope, rate, number)
  if rate then set_bucket(scope, math.max(bucket(scope), NOW) + (number or 1) * price(rate)) end
end

-- Takes a token from each rate that applies to a job that starts.
function limits.take_tokens(row)
  local tenant, queue = row.tenant, row.queue
  if not has_settings(tenant) then return end
  limits.take_token(counts.name('t', tenant, ''), limits.of('t', tenant, '').rate)
  limits.take_token(counts.name('q', tenant, queue), limits.of('q', tenant, queue).rate)
  if row.group then
    local rate = limits.group(tenant, row.group, queue).rate
    limits.take_token(counts.name('g', tenant, row.group), rate)
  end
end

-- Applies a new rate: a bucket never lacks more tokens than it can hold.
function limits.cap_bucket(scope, rate)
  if not rate then return end
  local emptiest = NOW + rate.burst * price(rate)
  if bucket(scope) > emptiest then set_bucket(scope, emptiest) end
end

-- When an empty bucket gets its next token; nil if it has tokens, or there is no rate.
function limits.token_at(scope, rate)
  if not rate or limits.tokens(scope, rate) > 0 then return nil end
  return bucket(scope) - (rate.burst - 1) * price(rate)
end

function limits.save()
  for scope in pairs(changed_buckets) do hput(key('buckets'), scope, whole(buckets[scope])) end
end

-- -- room -----------------------------------------------------------------------------------------

function limits.slots(scope)
  zflush(key('slots:' .. scope))
  return call('ZCOUNT', key('slots:' .. scope), '(' .. whole(NOW), '+inf')
end

-- How many jobs of a scope may start now.
local function room(kind, tenant, part, limit)
  if limit == NOTHING then return UNLIMITED end
  if limit.paused then return 0 end
  local left = UNLIMITED
  if limit.max_running then
    left = limit.max_running - counts.of(kind, tenant, part)[PROCESSING]
    if limit.slots_count then left = left - limits.slots(counts.name(kind, tenant, part)) end
  end
  if limit.rate then
    left = math.min(left, limits.tokens(counts.name(kind, tenant, part), limit.rate))
  end
  return math.max(0, left)
end

function limits.tenant_room(tenant)
  if not has_settings(tenant) then return UNLIMITED end
  return room('t', tenant, '', limits.of('t', tenant, ''))
end

function limits.queue_room(tenant, queue)
  if not has_settings(tenant) then return UNLIMITED end
  return room('q', tenant, queue, limits.of('q', tenant, queue))
end

function limits.line_room(tenant, queue)
  return math.min(limits.tenant_room(tenant), limits.queue_room(tenant, queue))
end

function limits.group_room(tenant, group, queue)
  if not has_settings(tenant) then return UNLIMITED end
  return room('g', tenant, group, limits.group(tenant, group, queue))
end

-- -- room that comes with time --------------------------------------------------------------------

-- Has the first repair after an instant check a scope; the earliest instant counts.
function limits.recheck_at(at, scope)
  local name = key('reopen')
  zflush(name)
  local known = call('ZSCORE', name, scope)
  if known and tonumber(known) <= at then return end
  zput(name, scope, at)
  local kind, tenant, part = string.match(scope, '^(%a)%z([^%z]*)%z(.*)$')
  if tenant == '' then return end -- Who waits at the platform looks again before it sleeps.
  if kind == 'q' then base.wake(tenant .. '\0' .. part) else turns.wake(tenant) end
end

-- Has a scope checked when a token or the end of a slot will make room in it, if either will.
function limits.recheck_later(kind, tenant, part, limit)
  if limit == NOTHING then return end
  local scope = counts.name(kind, tenant, part)
  local at = limits.token_at(scope, limit.rate)
  if limit.slots_count and limit.max_running then
    local first = call('ZRANGEBYSCORE', key('slots:' .. scope), '(' .. whole(NOW), '+inf',
      'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then at = math.min(at or UNLIMITED * 2, tonumber(first[2])) end
  end
  if at then limits.recheck_at(at, scope) end
end

-- Checks a scope at the end of the call: its room may have changed.
function limits.recheck(scope)
  local kind, tenant, part = string.match(scope, '^(%a)%z([^%z]*)%z(.*)$')
  if tenant == '' then
    platform.free(scope)
    return
  end
  call('ZREMRANGEBYSCORE', key('slots:' .. scope), '-inf', whole(NOW))
  if kind == 'g' then
    groups.touch(tenant, part)
  elseif kind == 'q' then
    lines.touch(tenant, part)
  else
    lines.touch_tenant(tenant)
  end
end

-- Applies new settings of a scope, as JSON; nil if they were deleted.
function limits.configure(kind, tenant, part, text)
  if tenant == '' then return platform.configure(kind, part, text) end
  local scope, name = counts.name(kind, tenant, part), key('rules')
  local before = call('HGET', name, scope)
  local old = before and cjson.decode(before) or NOTHING
  local new = text and cjson.decode(text) or NOTHING
  if text then call('HSET', name, scope, text) else call('HDEL', name, scope) end
  local more = (text and 1 or 0) - (before and 1 or 0)
  call('HINCRBY', key('ruled'), tenant, more)
  local was = before and (kind == 'g' or old.groups ~= nil)
  local is = text and (kind == 'g' or new.groups ~= nil)
  call('HINCRBY', key('ruled'), tenant .. '\0', (is and 1 or 0) - (was and 1 or 0))
  base.set_head('rules', heads.rules + more)
  settings[scope] = new
  of_tenants[tenant], of_groups[tenant] = nil, nil
  -- If the last settings were deleted, what they held back must still be found in this call.
  settings_changed = true
  read_tenant(tenant)
  of_tenants[tenant] = true
  limits.cap_bucket(scope, new.rate)
  if kind == 'g' then
    groups.reset(tenant, part)
  elseif kind == 'q' and (old.groups ~= nil or new.groups ~= nil) then
    groups.reset_queue(tenant, part)
  end
  limits.recheck(scope)
end
