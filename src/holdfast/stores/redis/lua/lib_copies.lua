-- Copies: settings of the platform that every shard applies to its own tenants.
--
--   copies   hash  name of a setting -> {stamp, closing, kind, part, text or false} in msgpack
--   copying  hash  home: name -> the stamp that not every shard is known to have
--
-- Home is the shard that stores the setting. It decides, and gives each state of a setting a stamp.
-- Stamps follow the server's time and grow, so a state that comes late replaces no newer one, and a
-- server that took over without the last states gives later stamps than the one before it.
--
-- A setting that is closing is still applied, but gets no new users: home asks all shards for its
-- users before it deletes it. Only home closes and opens, and it deletes only what is still closing
-- by the stamp by which all shards closed it.

local COPIES, COPYING = key('copies'), key('copying')
local OF_TIER = 'd'

local known = {}

-- What is stored of a setting; nil if nothing is.
local function stored(name)
  if known[name] == nil then
    local packed = call('HGET', COPIES, name)
    local found = packed and cmsgpack.unpack(packed)
    known[name] = found and {stamp = found[1], closing = found[2], kind = found[3],
      part = found[4], text = found[5], packed = packed}
  end
  return known[name] or nil
end

local function store(name, one)
  one.packed = cmsgpack.pack({one.stamp, one.closing, one.kind, one.part, one.text})
  known[name] = one
  call('HSET', COPIES, name, one.packed)
end

-- Applies a setting to the tenants of this shard.
local function apply(one)
  if one.kind == OF_TIER then tiers.configure(one.part, one.text or nil, one.stamp) end
end

-- How many tenants of this shard use a setting.
local function users(one) return one.kind == OF_TIER and tiers.users(one.part) or 0 end

-- -- home -----------------------------------------------------------------------------------------

-- A new state of a setting, for all shards. Returns its stamp.
local function restamp(name, one, least)
  local before = stored(name)
  one.stamp = math.max(SERVER_NOW, (before and before.stamp or 0) + 1, least or 0)
  store(name, one)
  call('HSET', COPYING, name, whole(one.stamp))
  return one.stamp
end

-- A new value of a setting, as JSON; nil if it was deleted. The caller applies it here.
function copies.set(name, kind, part, text)
  return restamp(name, {closing = false, kind = kind, part = part, text = text or false})
end

-- Whether a setting is closing, by this stamp if one is given.
function copies.is_closing(name, stamp)
  local one = stored(name)
  return one ~= nil and one.closing and (not stamp or one.stamp == stamp)
end

-- Closes a setting, unless somebody does so already.
function copies.close(name)
  local one = stored(name)
  if one.closing then return end
  restamp(name, {closing = true, kind = one.kind, part = one.part, text = one.text})
end

local opened = false

-- Whether this call opened any.
function copies.has_opened() return opened end

function copies.reopen(name)
  local one = stored(name)
  if not one or not one.closing then return end
  base.insist()
  opened = true
  restamp(name, {closing = false, kind = one.kind, part = one.part, text = one.text})
end

-- Has all shards told of a setting once more; one of them has a copy with this stamp. If home knows
-- less, that copy came from a server that is lost, and what home has replaces it.
function copies.repeat_from(name, stamp, kind, part)
  local one = stored(name) or {stamp = 0, closing = false, kind = kind, part = part, text = false}
  if stamp > one.stamp then
    restamp(name, {closing = one.closing, kind = one.kind, part = one.part, text = one.text},
      stamp + 1)
  else
    call('HSET', COPYING, name, whole(one.stamp))
  end
end

-- All shards have this state. What is closing stays listed, so that somebody opens it again.
function copies.done(name, stamp)
  if copies.is_closing(name) or call('HGET', COPYING, name) ~= whole(stamp) then return end
  call('HDEL', COPYING, name)
end

-- The names of what not every shard is known to have.
function copies.pending() return call('HKEYS', COPYING) end

-- A setting as shards are told of it: {name, stamp, the stored copy, its users here}.
function copies.answer(name)
  local one = stored(name)
  return {name, whole(one.stamp), one.packed, users(one)}
end

-- Whether there is something to tell of a setting, whether or not it is pending.
function copies.is_worth_telling(name)
  local one = stored(name)
  return one ~= nil and (one.text ~= false or call('HEXISTS', COPYING, name) == 1)
end

-- -- every shard ----------------------------------------------------------------------------------

-- Takes a copy of what home has, unless this shard has a newer one. Returns its users here.
function copies.accept(name, packed)
  local before, found = stored(name), cmsgpack.unpack(packed)
  local one = {stamp = found[1], closing = found[2], kind = found[3], part = found[4],
    text = found[5]}
  if not before or one.stamp > before.stamp then
    store(name, one)
    if one.text ~= (before and before.text or false) then apply(one) end
  end
  return users(one)
end

-- The name, stamp, kind and part of each copy of this shard, flat.
function copies.list()
  local found = {}
  for _, name in ipairs(call('HKEYS', COPIES)) do
    local one, at = stored(name), #found
    found[at + 1], found[at + 2], found[at + 3], found[at + 4] =
      name, whole(one.stamp), one.kind, one.part
  end
  return found
end
