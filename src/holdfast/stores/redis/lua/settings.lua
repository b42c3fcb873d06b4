-- settings: {puts, page or nil, most, by or nil, most tiers, step or nil} -> {1, name, value, version, ...}. Or,
-- if nothing changes: {0, name, version}, a put is stale; {2, tenant}, it has too many scopes with
-- settings; {3, tier, names of tiers}, there is no such tier; {4, tier, number}, so many tenants are
-- in it; {5}, there are too many tiers; {8, tier}, it is closing; {9, tiers as lib_copies answers
-- them}, these are closing, to be deleted by the same puts with their stamps once all shards closed
-- them and none has users.
--
-- A put of scopes of the platform over several shards takes two calls, of which shard 0 is asked. The
-- first, `step` 0, stops all starts in these scopes and answers {6, epoch}. In between no shard lets
-- a job start by an earlier permit (scopes.lua). The second puts them: `step` is {epoch, for each of
-- these scopes its running jobs in each shard}. If another put came between, the answer is {7}. So no
-- job starts under settings that were replaced, and a new scope is counted everywhere.
--
-- A put is {name, value or nil, version, kind or nil, tenant, part, text or nil, tier or nil, stamp
-- or nil}. With a kind it is the setting of that scope, or of the tier `part` (kind d), and takes
-- effect at once: `text` is the value as Python encodes it, `tier` the one that it puts a tenant
-- into. A page is {from, to, limit} of names in order. A tenant may have `most` scopes with settings, deleted ones
-- included: versions are kept.

local puts, page, most, most_tiers, step = ARGS[1], ARGS[2], ARGS[3], ARGS[5], ARGS[6]
base.by = ARGS[4]
local OF_TIER = 'd'

-- The value, nil if there is none, and the last version, which is kept when the value is deleted.
local function setting(name)
  local text = call('HGET', key('settings'), name)
  if not text then return nil, 0 end
  local version, there, value = string.match(text, '^(%d+) (%d)(.*)$')
  return there == '1' and value or nil, tonumber(version)
end

local function scopes_field(tenant) return tenant .. '\0\0' end

local function put(one)
  local _, version = setting(one[1])
  local value = one[2] and '1' .. one[2] or '0'
  call('HSET', key('settings'), one[1], whole(version + 1) .. ' ' .. value)
  if one[2] then
    call('ZADD', key('setting_names'), 0, one[1])
  else
    call('ZREM', key('setting_names'), one[1])
  end
  if one[4] then
    if one[4] == OF_TIER then
      if SHARDS > 1 then
        copies.set(one[6], one[7])
      else
        tiers.configure(one[6], one[7], version + 1)
      end
    else
      if version == 0 then call('HINCRBY', key('ruled'), scopes_field(one[5]), 1) end
      if one.scope then ledger.restart(one.scope, one.running, step[1]) end
      limits.configure(one[4], one[5], one[6], one[7])
      if one.scope then ledger.configured(one.scope, one[7] ~= nil) end
    end
    local name = rows.name(one[5], one[1])
    local cursor = events.add('configured', one[5], one[1], '', '', 0, 0, nil, one[2] or '',
      events.tails({name})[1])
    events.set_tail(name, cursor)
  end
end

-- What these puts make of tiers: `made` and `gone` by name, and how many more there will be.
local function changed_tiers()
  local made, gone, more = {}, {}, 0
  for _, one in ipairs(puts) do
    if one[4] == OF_TIER then
      local set, there = one[2] and made or gone, tiers.exists(one[6])
      set[one[6]] = true
      more = more + (one[2] and 1 or 0) - (there and 1 or 0)
    end
  end
  return made, gone, more
end

-- Closes the tiers that the puts delete: tenants of other shards may be in them. Returns nothing if
-- all shards have closed them.
local function refusal_to_delete()
  local gone, all_closed = {}, true
  for _, one in ipairs(puts) do
    local tier = one[6]
    if one[4] == OF_TIER and tier ~= '' and not one[2] and tiers.exists(tier) then
      gone[#gone + 1] = tier
      all_closed = all_closed and copies.is_closed_by(tier, one[9])
    end
  end
  if all_closed then return end
  base.insist()
  local answer = {9}
  for at, tier in ipairs(gone) do
    copies.close(tier)
    answer[at + 1] = copies.answer(tier)
  end
  base.finish()
  return answer
end

-- Why the puts are refused, as far as tiers go.
local function refusal_of_tiers()
  local made, gone, more = changed_tiers()
  if more > 0 and heads.tiers + more > most_tiers then return {5} end
  for tier in pairs(gone) do
    local number = SHARDS == 1 and tiers.users(tier) or 0
    if number > 0 then return {4, tier, number} end
  end
  for _, one in ipairs(puts) do
    local tier = one[8]
    if tier and not made[tier] and (gone[tier] or not tiers.exists(tier)) then
      return {3, tier, unpack(tiers.names())}
    end
    if tier and SHARDS > 1 and copies.is_closing(tier) then return {8, tier} end
  end
  if SHARDS > 1 then return refusal_to_delete() end
end

-- Why all puts are refused; nil if they are not.
local function refusal()
  local new, seen = {}, {}
  for _, one in ipairs(puts) do
    local value, version = setting(one[1])
    local now = value and version or 0
    if now ~= one[3] then return {0, one[1], whole(now)} end
    if one[4] and one[4] ~= OF_TIER and version == 0 and not seen[one[1]] then
      seen[one[1]] = true
      new[one[5]] = (new[one[5]] or 0) + 1
    end
  end
  for tenant, more in pairs(new) do
    local known = tonumber(call('HGET', key('ruled'), scopes_field(tenant)) or '0')
    if known + more > most then return {2, tenant} end
  end
  return refusal_of_tiers()
end

-- Begins the put of scopes of the platform, or looks whether it may end.
local function take_step()
  if step == 0 then
    local epoch = ledger.next_epoch()
    for _, one in ipairs(puts) do
      if one.scope then ledger.freeze(one.scope, epoch) end
    end
    base.finish()
    return {6, whole(epoch)}
  end
  local at = 0
  for _, one in ipairs(puts) do
    if one.scope then
      at = at + 1
      one.running = step[2][at]
      if not ledger.is_frozen(one.scope, step[1]) then return {7} end
    end
  end
end

if #puts > 0 then
  local refused = refusal()
  if refused then return refused end
  base.insist()
  if step then
    for _, one in ipairs(puts) do
      if one[4] and one[4] ~= OF_TIER and one[5] == '' then
        one.scope = counts.name(one[4], '', one[6])
      end
    end
    local answer = take_step()
    if answer then return answer end
  end
  for _, one in ipairs(puts) do put(one) end
  base.finish()
end

local names, answer = {}, {1}
if page then
  names = call('ZRANGEBYLEX', key('setting_names'), page[1], page[2], 'LIMIT', 0, page[3])
else
  for index, one in ipairs(puts) do names[index] = one[1] end
end
for _, name in ipairs(names) do
  local value, version = setting(name)
  if value then
    answer[#answer + 1] = name
    answer[#answer + 1] = value
    answer[#answer + 1] = whole(version)
  end
end
return answer
