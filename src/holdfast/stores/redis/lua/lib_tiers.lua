-- Tiers: what tenants, their queues and groups have unless their own settings say otherwise. The
-- rules are a port of core/tiers.py.
--
--   tiers       hash  tier -> version, change, instant, its defaults as JSON, '' if it was deleted.
--                     '' is the tier of the platform's defaults. Of several shards each has a copy;
--                     then the version is a stamp (lib_copies.lua)
--   tier_users  hash  tier -> number of tenants of this shard in it
--   ruled       hash  tenant\0\0\0 -> change, instant: when the tenant last came into another tier
--
-- A shard needs nothing but these keys to apply them. Changes are numbered in the shard. Without
-- tiers (heads.tiers is 0) no script loads this library.

local TIERS, USERS = key('tiers'), key('tier_users')
local NOTHING = {}
local BOUNDED = {'max_running', 'rate'}
local OF_TENANT = {'max_running', 'rate', 'weight', 'max_queued', 'max_bytes'}

local known, layers_of, tier_of, moves, plain = {}, {}, {}, {}, {}

-- What is stored of a tier.
local function stored(tier)
  if not known[tier] then
    local text = call('HGET', TIERS, tier) or '0 0 0 '
    local version, change, at, json = string.match(text, '^(%d+) (%d+) (%d+) (.*)$')
    known[tier] = {version = tonumber(version), change = tonumber(change), at = tonumber(at),
      json = json ~= '' and json, defaults = json ~= '' and cjson.decode(json)}
  end
  return known[tier]
end

-- The version of a tier, 0 if it was never set, and its defaults as JSON, false if it is deleted.
function tiers.state(tier) return stored(tier) end

function tiers.exists(tier) return stored(tier).json ~= false end

-- The names of all tiers.
function tiers.names()
  local found = {}
  for _, tier in ipairs(call('HKEYS', TIERS)) do
    if tier ~= '' and tiers.exists(tier) then found[#found + 1] = tier end
  end
  return found
end

-- The version of each tier, deleted ones included: {tier, version, ...}.
function tiers.versions()
  local found = call('HGETALL', TIERS)
  for at = 2, #found, 2 do found[at] = string.match(found[at], '^%d+') end
  return found
end

-- How many tenants of this shard are in a tier.
function tiers.users(tier) return tonumber(call('HGET', USERS, tier) or '0') end

-- The tiers that tenants of this shard are in; '' is the tier of those that were put into none.
function tiers.used()
  local found = call('HKEYS', USERS)
  found[#found + 1] = ''
  return found
end

-- The tier of a tenant; '' if it was put into none.
function tiers.of(tenant)
  tier_of[tenant] = tier_of[tenant] or limits.own('t', tenant, '').tier or ''
  return tier_of[tenant]
end

-- The tier and the defaults that concern a tenant, as {tier, JSON, ...}: the strongest first.
function tiers.texts(tenant)
  local found, tier = {}, tiers.of(tenant)
  for _, name in ipairs(tier == '' and {''} or {tier, ''}) do
    if tiers.exists(name) then found[#found + 1], found[#found + 2] = name, stored(name).json end
  end
  return found
end

-- -- the values that count ------------------------------------------------------------------------

-- The layers of the tenants in a tier, the strongest first.
local function layers(tier)
  if not layers_of[tier] then
    local found = {}
    for _, name in ipairs(tier == '' and {''} or {tier, ''}) do
      found[#found + 1] = stored(name).defaults or nil
    end
    layers_of[tier] = found
  end
  return layers_of[tier]
end

-- Whether any tier or default concerns a tenant; and whether any limits its groups.
function tiers.concerns(tenant) return #layers(tiers.of(tenant)) > 0 end
function tiers.limits_groups(tenant)
  for _, layer in ipairs(layers(tiers.of(tenant))) do
    if layer.group then return true end
  end
  return false
end

-- The value of the strongest that sets a field: `own`, then this part of each layer, or its whole.
local function first(field, own, list, part)
  if own[field] ~= nil then return own[field] end
  for _, layer in ipairs(list) do
    local from = layer
    if part then from = layer[part] or NOTHING end
    if from[field] ~= nil then return from[field] end
  end
end

-- These settings, with the fields that they leave open filled in.
local function filled(own, fields, list, part)
  local found = {}
  for field, value in pairs(own) do found[field] = value end
  for _, field in ipairs(fields) do found[field] = first(field, own, list, part) end
  return found
end

-- As `ceiling.above`. Counts are divided by whole seconds, so that the products are exact.
local function is_above(limit, top)
  if type(limit) ~= 'table' then return limit > top end
  return limit.count * (top.per_us / 1000000) > top.count * (limit.per_us / 1000000)
    or limit.burst > top.burst
end

local function of_tenant(own, list)
  local found, ceiling = filled(own, OF_TENANT, list), own.ceiling or NOTHING
  for _, field in ipairs(BOUNDED) do
    local top = first(field, ceiling, list, 'ceiling')
    if top and (not found[field] or is_above(found[field], top)) then found[field] = top end
  end
  return found
end

local function of_queue(own, list)
  local found = filled(own, BOUNDED, list, 'queue')
  local rules = filled(own.groups or NOTHING, BOUNDED, list, 'group')
  if next(rules) then found.groups = rules end
  return found
end

-- The settings that count for a scope, as `tiers.effective`. Tenants without settings of their own
-- share them.
function tiers.effective(kind, tenant, own)
  local tier = tiers.of(tenant)
  local list = layers(tier)
  if kind == 'g' or #list == 0 then return own end
  local is_plain = next(own) == nil
  local found = is_plain and plain[kind .. tier]
  if not found then
    found = kind == 't' and of_tenant(own, list) or of_queue(own, list)
    if next(found) == nil then found = own end
    if is_plain then plain[kind .. tier] = found end
  end
  return found
end

-- -- changes --------------------------------------------------------------------------------------

-- When the tenant of a scope last came under other rules, if it did after this change; else nil.
function tiers.changed_after(scope, number)
  local tenant, at = string.match(scope, '^%a%z([^%z]*)%z'), nil
  if tenant == '' then return nil end
  if not moves[tenant] then
    local text = call('HGET', key('ruled'), tenant .. '\0\0\0') or '0 0'
    local change, moved_at = string.match(text, '^(%d+) (%d+)$')
    moves[tenant] = {change = tonumber(change), at = tonumber(moved_at)}
  end
  for _, one in ipairs({stored(tiers.of(tenant)), stored(''), moves[tenant]}) do
    if one.change > number then number, at = one.change, one.at end
  end
  return at
end

local function next_change()
  base.set_head('changes', heads.changes + 1)
  return heads.changes
end

local function forget()
  known, layers_of, tier_of, moves, plain = {}, {}, {}, {}, {}
  limits.forget()
end

-- What stops jobs of the tenants in a tier, by name.
local function stops(tier)
  local found, list = {}, layers(tier)
  for _, part in ipairs({'', 'ceiling', 'queue', 'group'}) do
    for _, field in ipairs(BOUNDED) do
      found[part .. field] = first(field, NOTHING, list, part ~= '' and part or nil)
    end
  end
  return found
end

-- Whether more jobs may start than under what stopped them before. A slower rate may allow some too:
-- it can have a larger part of its tokens.
local function opens(before, now)
  for name, limit in pairs(before) do
    local new = now[name]
    if new == nil then return true end
    if type(limit) ~= 'table' then
      if new > limit then return true end
    elseif new.count ~= limit.count or new.per_us ~= limit.per_us or new.burst ~= limit.burst then
      return true
    end
  end
  return false
end

local function write(tier, version, change, at, text)
  call('HSET', TIERS, tier, table.concat({whole(version), whole(change), whole(at), text or ''}, ' '))
end

-- Applies a version of what a tier sets, as JSON; nil if it was deleted. An older version does
-- nothing, so this may be repeated and come late. Only the tier is written, whatever number of
-- tenants are in it: claims look again at what may have room.
function tiers.configure(tier, text, version)
  local old, had = stored(tier), tiers.exists(tier)
  if version <= old.version then return end
  if (text or false) == old.json then
    write(tier, version, old.change, old.at, text)
    known[tier] = nil
    return
  end
  local change, more = next_change(), (text and 1 or 0) - (had and 1 or 0)
  local is_last = heads.tiers + more == 0 -- What is kept while there are tiers goes.
  local concerned, before = (tier == '' or is_last) and tiers.used() or {tier}, {}
  for at, name in ipairs(concerned) do before[at] = stops(name) end
  write(tier, version, change, NOW, text)
  base.set_head('tiers', heads.tiers + more)
  base.set_head('rules', heads.rules + more)
  forget()
  for at, name in ipairs(concerned) do
    if is_last or opens(before[at], stops(name)) then relook.mark(name, change) end
  end
end

-- Counts a tenant that came from one tier into another; nil is none.
function tiers.move(tenant, from, to)
  local change = next_change()
  if from and call('HINCRBY', USERS, from, -1) <= 0 then call('HDEL', USERS, from) end
  if to then call('HINCRBY', USERS, to, 1) end
  call('HSET', key('ruled'), tenant .. '\0\0\0', whole(change) .. ' ' .. whole(NOW))
  forget()
  relook.move(tenant, from or '', to or '')
end
