-- Relook: what had no room under its tier is looked at again after a change of the tier, by claims
-- and in portions, so that the change is one write.
--
--   shut:<tier>     zset  tenants of which something has no room, by the change up to which it was
--                         looked at. '' is the tier of those that were put into none
--   stuck:<tenant>  zset  of a tenant: its lines (q) and groups (g) without room, likewise
--   looks           zset  tiers that are looked at again, by their change
--
-- These are kept while there are tiers. What a pause of its own stops is in none: no tier opens it.
-- An entry may be left of what has room by now; it goes when it is looked at.

local GRANTS_MAX = 2000 -- Jobs of groups that may enter their lines; then this call stops looking.
local NAMED_MAX = 1000 -- Tenants that a claim names which it looks at before others.
local LOOKS = key('looks')

local listed = {} -- By tier: the tenants that this call found without room.

local function shut_key(tier) return key('shut:' .. tier) end
local function stuck_key(tenant) return key('stuck:' .. tenant) end

local function list(tier, tenant)
  listed[tier] = listed[tier] or {}
  listed[tier][tenant] = true
end

-- A tenant (t), or a line or group of it, has no room.
function relook.shut(kind, tenant, part)
  if kind ~= 't' then zput(stuck_key(tenant), kind .. '\0' .. part, heads.changes) end
  list(tiers.of(tenant), tenant)
end

-- A line or a group has room, or nothing that waits.
function relook.drop(kind, tenant, part) zdrop(stuck_key(tenant), kind .. '\0' .. part) end

local function drop_tenant(tier, tenant)
  if listed[tier] then listed[tier][tenant] = nil end
  zdrop(shut_key(tier), tenant)
end

-- No line of a tenant has jobs.
function relook.release(tenant)
  local name = stuck_key(tenant)
  zflush(name)
  if call('EXISTS', name) == 0 then drop_tenant(tiers.of(tenant), tenant) end
end

-- Adds the tenants that were found. One that is listed keeps its place: more of it may have to be
-- looked at.
function relook.save()
  for tier, tenants in pairs(listed) do
    local name, values, change = shut_key(tier), {'NX'}, whole(heads.changes)
    zflush(name)
    for tenant in pairs(tenants) do
      values[#values + 1], values[#values + 2] = change, tenant
      if #values > 2000 then
        call('ZADD', name, unpack(values))
        values = {'NX'}
      end
    end
    if #values > 1 then call('ZADD', name, unpack(values)) end
  end
  listed = {}
end

-- -- what claims look at again --------------------------------------------------------------------

-- Has claims look at the tenants of a tier that were looked at before a change, and wakes those who
-- wait for jobs.
function relook.mark(tier, change)
  if call('EXISTS', shut_key(tier)) == 0 then return end
  base.wake_all()
  call('ZADD', LOOKS, whole(change), tier)
  if heads.looks == 0 then
    base.set_head('looks', 1)
    base.set_head('rules', heads.rules + 1)
  end
end

-- Has claims look at all of a tenant that came into another tier, if anything of it has no room.
function relook.move(tenant, from, to)
  local name, was_listed = shut_key(from), listed[from] and listed[from][tenant]
  drop_tenant(from, tenant)
  if not call('ZSCORE', name, tenant) and not was_listed then return end
  zflush(name)
  call('ZADD', shut_key(to), '-1', tenant)
  local known = call('ZSCORE', LOOKS, to)
  relook.mark(to, known and tonumber(known) or 0)
end

-- Looks at one line or group.
local function look_at_part(tenant, text)
  local kind, part = string.match(text, '^(%a)%z(.*)$')
  zdrop(stuck_key(tenant), text)
  if kind == 'q' then
    lines.touch(tenant, part)
  else
    groups.touch(tenant, part)
    groups.refresh_all()
  end
end

-- Looks at up to so many lines and groups of a tenant. Returns how many. If there are more, the
-- tenant comes after the others of its tier, which need not wait for it.
local function look_at(tenant, tier, due, most)
  limits.has_settings(tenant) -- It counts as one with settings until the end of the call.
  local name = stuck_key(tenant)
  zflush(name)
  local parts = call('ZRANGEBYSCORE', name, '-inf', '(' .. whole(heads.changes), 'LIMIT', 0, most)
  drop_tenant(tier, tenant)
  if heads.tiers > 0 and call('ZCARD', name) > #parts then list(tier, tenant) end
  lines.touch_tenant(tenant)
  local number = 0
  for _, text in ipairs(parts) do
    if groups.granted() >= GRANTS_MAX then break end
    look_at_part(tenant, text)
    number = number + 1
  end
  if number == most or number < #parts then
    zput(shut_key(tier), tenant, string.format('%.1f', due - 0.5))
  end
  return number
end

-- Those of the tenants that a claim names that are to be looked at again, as {tenant, tier, due}.
local function named(tenants)
  local by_tier, found = {}, {}
  for at = 1, math.min(#tenants, NAMED_MAX) do
    local tier = tiers.of(tenants[at])
    by_tier[tier] = by_tier[tier] or {}
    by_tier[tier][#by_tier[tier] + 1] = tenants[at]
  end
  for tier, names in pairs(by_tier) do
    local due = tonumber(call('ZSCORE', LOOKS, tier) or '-1')
    for _, one in ipairs(fairness.among(shut_key(tier), names)) do
      if one[1] < due then found[#found + 1] = {one[2], tier, due} end
    end
  end
  return found
end

-- Those of a tier that come first; none is left if the list is empty.
local function first_of(tier, due, most)
  local name, found = shut_key(tier), {}
  zflush(name)
  local names = call('ZRANGEBYSCORE', name, '-inf', '(' .. due, 'LIMIT', 0, most)
  for at, tenant in ipairs(names) do found[at] = {tenant, tier, tonumber(due)} end
  return found
end

-- Nothing is left to look at.
local function finish()
  base.set_head('looks', 0)
  base.set_head('rules', heads.rules - 1)
  settings_changed = true -- What was looked at counts as one with settings until the end.
end

local left, looked -- Of a portion: how many may still be looked at, and which tenants were.

local function is_full() return left <= 0 or groups.granted() >= GRANTS_MAX end

local function look(list)
  for _, one in ipairs(list) do
    if is_full() then return end
    left = left - 1 - look_at(one[1], one[2], one[3], left)
    looked[#looked + 1] = one[1]
  end
end

local function look_at_all()
  local marked = call('ZRANGE', LOOKS, 0, -1, 'WITHSCORES')
  for at = 1, #marked, 2 do
    local tier, due = marked[at], marked[at + 1]
    while not is_full() do
      local found = first_of(tier, due, left)
      if #found == 0 then
        call('ZREM', LOOKS, tier)
        break
      end
      look(found)
    end
  end
end

-- Looks again at a portion, first at these tenants, which a claim names; `only`: at no others.
-- Returns the tenants.
function relook.portion(tenants, only)
  left, looked = REPAIR_MAX, {}
  if tenants then look(named(tenants)) end
  if not only then look_at_all() end
  groups.refresh_all()
  lines.refresh_all(true)
  if call('EXISTS', LOOKS) == 0 then finish() end
  return looked
end

-- Looks at a further portion of what a claim of these tenants, or of all, can find.
function relook.more(tenants) return relook.portion(tenants, tenants ~= nil) end
