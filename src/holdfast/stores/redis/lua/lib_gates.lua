-- Gates: the limits, rates, pauses and slots of scopes. The rules are those of `scope.py`.
--
-- For a tenant that has set nothing, nothing is asked.

local NOTHING = {}
local settings, buckets, has_rules, grouping = {}, {}, {}, {}

local function learn(tenant)
  local found = call('HMGET', key('ruled'), tenant, tenant .. '\0')
  has_rules[tenant] = found[1] ~= false and found[1] ~= '0'
  grouping[tenant] = found[2] ~= false and found[2] ~= '0'
end

function gates.ruled(tenant)
  if has_rules[tenant] == nil then learn(tenant) end
  return has_rules[tenant]
end

-- What is set for a scope.
function gates.of(kind, tenant, part)
  if not ruled(tenant) then return NOTHING end
  local scope = counts.name(kind, tenant, part)
  local found = settings[scope]
  if not found then
    local text = call('HGET', key('rules'), scope)
    found = text and cjson.decode(text) or NOTHING
    settings[scope] = found
  end
  return found
end

-- As `scope.group_gate`: the group's own word first, then its queue's.
function gates.group(tenant, group, queue)
  local own = gates.of('g', tenant, group)
  local default = gates.of('q', tenant, queue).groups or NOTHING
  local ordered = own.ordered
  if ordered == nil then ordered = default.ordered or false end
  local most = own.max_running or default.max_running
  if ordered then most = 1 end
  return {
    max_running = most, rate = own.rate or default.rate, ordered = ordered, paused = own.paused,
    slots_count = own.slots_count,
  }
end

-- Whether a job of this group has to wait for its place before it stands in its line.
function gates.gated(tenant, group, queue)
  if not group or not ruled(tenant) or not grouping[tenant] then return false end
  local gate = gates.group(tenant, group, queue)
  return gate.max_running ~= nil or gate.rate ~= nil or gate.paused ~= nil
end

function gates.weight(tenant) return gates.of('t', tenant, '').weight or 1 end

-- -- rates: a bucket is the instant at which it will be full again ----------------------------------

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

local function tokens(scope, rate)
  return rate.burst - divided_up(math.max(0, bucket(scope) - NOW), price(rate))
end

local changed_buckets = {}

local function set_bucket(scope, full_at)
  buckets[scope] = full_at
  changed_buckets[scope] = true
end

local function spend(scope, rate)
  if rate then set_bucket(scope, math.max(bucket(scope), NOW) + price(rate)) end
end

-- Takes a token of each rate that a starting job falls under.
function gates.spend(row)
  local tenant, queue = row.tenant, row.queue
  if not ruled(tenant) then return end
  spend(counts.name('t', tenant, ''), gates.of('t', tenant, '').rate)
  spend(counts.name('q', tenant, queue), gates.of('q', tenant, queue).rate)
  if row.group then
    spend(counts.name('g', tenant, row.group), gates.group(tenant, row.group, queue).rate)
  end
end

-- Lets a new rate count from now: a bucket is never emptier than empty.
function gates.bound(scope, rate)
  if not rate then return end
  local emptiest = NOW + rate.burst * price(rate)
  if bucket(scope) > emptiest then set_bucket(scope, emptiest) end
end

-- When an empty bucket has its next token; nil when it is not the bucket that is empty.
function gates.token_at(scope, rate)
  if not rate or tokens(scope, rate) > 0 then return nil end
  return bucket(scope) - (rate.burst - 1) * price(rate)
end

function gates.save()
  for scope in pairs(changed_buckets) do hput(key('buckets'), scope, whole(buckets[scope])) end
end

-- -- room -----------------------------------------------------------------------------------------

function gates.slots(scope)
  zsettle(key('slots:' .. scope))
  return call('ZCOUNT', key('slots:' .. scope), '(' .. whole(NOW), '+inf')
end

-- How many jobs of a scope may start, as far as this gate goes.
local function room(kind, tenant, part, gate)
  if gate == NOTHING then return UNLIMITED end
  if gate.paused then return 0 end
  local left = UNLIMITED
  if gate.max_running then
    left = gate.max_running - counts.of(kind, tenant, part)[PROCESSING]
    if gate.slots_count then left = left - gates.slots(counts.name(kind, tenant, part)) end
  end
  if gate.rate then
    left = math.min(left, tokens(counts.name(kind, tenant, part), gate.rate))
  end
  return math.max(0, left)
end

function gates.tenant_room(tenant)
  if not ruled(tenant) then return UNLIMITED end
  return room('t', tenant, '', gates.of('t', tenant, ''))
end

function gates.queue_room(tenant, queue)
  if not ruled(tenant) then return UNLIMITED end
  return room('q', tenant, queue, gates.of('q', tenant, queue))
end

function gates.line_room(tenant, queue)
  return math.min(gates.tenant_room(tenant), gates.queue_room(tenant, queue))
end

function gates.group_room(tenant, group, queue)
  if not ruled(tenant) then return UNLIMITED end
  return room('g', tenant, group, gates.group(tenant, group, queue))
end

-- -- time opens -----------------------------------------------------------------------------------

-- Has the first repair from an instant on look at a scope; the earliest word counts.
function gates.reopen_at(at, scope)
  local name = key('reopen')
  zsettle(name)
  local known = call('ZSCORE', name, scope)
  if known and tonumber(known) <= at then return end
  zput(name, scope, at)
  local kind, tenant, part = string.match(scope, '^(%a)%z([^%z]*)%z(.*)$')
  if kind == 'q' then core.wake(tenant .. '\0' .. part) else lines.wake(tenant) end
end

-- Remembers when time alone will make room in a scope, if it will.
function gates.reopen_later(kind, tenant, part, gate)
  if gate == NOTHING then return end
  local scope = counts.name(kind, tenant, part)
  local at = gates.token_at(scope, gate.rate)
  if gate.slots_count and gate.max_running then
    local first = call('ZRANGEBYSCORE', key('slots:' .. scope), '(' .. whole(NOW), '+inf',
      'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then at = math.min(at or UNLIMITED * 2, tonumber(first[2])) end
  end
  if at then gates.reopen_at(at, scope) end
end

-- Lets what waits in a scope go on or rest, as its places and tokens are now.
function gates.look(scope)
  local kind, tenant, part = string.match(scope, '^(%a)%z([^%z]*)%z(.*)$')
  call('ZREMRANGEBYSCORE', key('slots:' .. scope), '-inf', whole(NOW))
  if kind == 'g' then
    groups.touch(tenant, part)
  elseif kind == 'q' then
    lines.touch(tenant, part)
  else
    lines.touch_tenant(tenant)
  end
end

-- Takes in what was just set for a scope; the text is JSON, nil when it was deleted.
function gates.configure(kind, tenant, part, text)
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
  core.set_head('rules', heads.rules + more)
  settings[scope] = new
  has_rules[tenant], grouping[tenant] = nil, nil
  -- While the old settings go, what they held back must still be found.
  gates_changed = true
  learn(tenant)
  has_rules[tenant] = true
  gates.bound(scope, new.rate)
  if kind == 'g' then
    groups.regrant(tenant, part)
  elseif kind == 'q' and (old.groups ~= nil or new.groups ~= nil) then
    groups.regrant_queue(tenant, part)
  end
  gates.look(scope)
end
