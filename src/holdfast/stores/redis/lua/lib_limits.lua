-- Limits, rates, pauses and slots of scopes. The rules are a port of core/scope.py; lib_tiers fills
-- in what the settings of a tenant leave open. For a tenant without settings nothing is read.

local NOTHING = {}
local settings, stored, buckets = {}, {}, {}
local has_own, of_tenants, of_groups, held_back = {}, {}, {}, {}

-- While claims look again at changed tiers, every tenant counts as one with settings: what a tier
-- that is gone held back must still be found.
local function read_tenant(tenant)
  local found = call('HMGET', key('ruled'), tenant, tenant .. '\0')
  local own = found[1] ~= false and found[1] ~= '0'
  has_own[tenant], of_groups[tenant] = own, found[2] ~= false and found[2] ~= '0'
  of_tenants[tenant] = own or heads.looks > 0 or held_back[tenant] or false
  if heads.tiers > 0 then
    of_tenants[tenant] = of_tenants[tenant] or tiers.concerns(tenant)
    of_groups[tenant] = of_groups[tenant] or tiers.limits_groups(tenant)
  end
end

-- Whether settings of its own, of its tier or of the platform's defaults concern a tenant.
function limits.has_settings(tenant)
  if of_tenants[tenant] == nil then read_tenant(tenant) end
  return of_tenants[tenant]
end

-- The settings that a scope itself has.
function limits.own(kind, tenant, part)
  if has_own[tenant] == nil then read_tenant(tenant) end
  if not has_own[tenant] then return NOTHING end
  local scope = counts.name(kind, tenant, part)
  if not stored[scope] then
    local text = call('HGET', key('rules'), scope)
    stored[scope] = text and cjson.decode(text) or NOTHING
  end
  return stored[scope]
end

-- The settings that count for a scope.
function limits.of(kind, tenant, part)
  if not has_settings(tenant) then return NOTHING end
  if heads.tiers == 0 then return limits.own(kind, tenant, part) end
  local scope = counts.name(kind, tenant, part)
  if not settings[scope] then
    settings[scope] = tiers.effective(kind, tenant, limits.own(kind, tenant, part))
  end
  return settings[scope]
end

-- Has settings read again: this call changed some.
function limits.forget()
  settings_changed, settings, stored, has_own, of_tenants, of_groups = true, {}, {}, {}, {}, {}
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

local changed_at = {} -- When a tier changed the rate of a bucket that was not used since.

-- When the bucket of a rate is full again. Under a changed rate it lacks at most what it can hold.
local function bucket(scope, rate)
  if not buckets[scope] then
    local text = call('HGET', key('buckets'), scope) or '0'
    buckets[scope] = tonumber(string.match(text, '^%d+'))
    if heads.tiers > 0 and buckets[scope] > NOW then
      changed_at[scope] = tiers.changed_after(scope, tonumber(string.match(text, ' (%d+)$') or '0'))
    end
  end
  local full_at, at = buckets[scope], changed_at[scope]
  return at and math.min(full_at, at + rate.burst * price(rate)) or full_at
end

-- How many tokens a scope has.
function limits.tokens(scope, rate)
  return rate.burst - divided_up(math.max(0, bucket(scope, rate) - NOW), price(rate))
end

local changed_buckets = {}

local function set_bucket(scope, full_at)
  buckets[scope], changed_at[scope] = full_at, nil
  changed_buckets[scope] = true
end

function limits.take_token(scope, rate, number)
  if rate then set_bucket(scope, math.max(bucket(scope, rate), NOW) + (number or 1) * price(rate)) end
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
  local emptiest = rate and NOW + rate.burst * price(rate)
  if rate and (bucket(scope, rate) > emptiest or changed_at[scope]) then
    set_bucket(scope, math.min(buckets[scope], emptiest))
  end
end

-- When an empty bucket gets its next token; nil if it has tokens, or there is no rate.
function limits.token_at(scope, rate)
  if not rate or limits.tokens(scope, rate) > 0 then return nil end
  return bucket(scope, rate) - (rate.burst - 1) * price(rate)
end

function limits.save()
  local change = heads.tiers > 0 and ' ' .. whole(heads.changes) or ''
  for scope in pairs(changed_buckets) do
    hput(key('buckets'), scope, whole(buckets[scope]) .. change)
  end
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

function limits.tenant_room(tenant) return room('t', tenant, '', limits.of('t', tenant, '')) end

function limits.queue_room(tenant, queue)
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

-- Has a scope without room checked when a token or the end of a slot will make room in it, if either
-- will, and when its tier changes.
function limits.recheck_later(kind, tenant, part, limit)
  if limit == NOTHING then return end
  if heads.tiers > 0 and not limit.paused then relook.shut(kind, tenant, part) end
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
  if kind == 'g' then return groups.touch(tenant, part) end
  if kind == 'q' then lines.touch(tenant, part) else lines.touch_tenant(tenant) end
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
  local was = before and (kind == 'g' or old.groups ~= nil)
  local is = text and (kind == 'g' or new.groups ~= nil)
  call('HINCRBY', key('ruled'), tenant, more)
  call('HINCRBY', key('ruled'), tenant .. '\0', (is and 1 or 0) - (was and 1 or 0))
  base.set_head('rules', heads.rules + more)
  limits.forget()
  -- If the last settings were deleted, what they held back must still be found in this call.
  held_back[tenant] = true
  if kind == 't' and old.tier ~= new.tier then tiers.move(tenant, old.tier, new.tier) end
  limits.cap_bucket(scope, limits.of(kind, tenant, part).rate)
  if kind == 'g' then
    groups.reset(tenant, part)
  elseif kind == 'q' and (old.groups ~= nil or new.groups ~= nil) then
    groups.reset_queue(tenant, part)
  end
  limits.recheck(scope)
end
