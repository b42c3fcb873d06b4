-- settings: {puts, page or nil, most, by or nil} -> {1, name, value, version, ...}, or {0, name,
-- version} if a put is stale, or {2, tenant} if the tenant has too many scopes with settings: then
-- nothing changes.
--
-- A put is {name, value or nil, version, kind or nil, tenant, part}; with a kind it is the setting
-- of that scope and takes effect at once. A page is {from, to, limit} of names in order. A tenant
-- may have `most` scopes with settings, deleted ones included: versions are kept.

local puts, page, most = ARGS[1], ARGS[2], ARGS[3]
base.by = ARGS[4]

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
    if version == 0 then call('HINCRBY', key('ruled'), scopes_field(one[5]), 1) end
    limits.configure(one[4], one[5], one[6], one[2])
    local name = rows.name(one[5], one[1])
    local cursor = events.add('configured', one[5], one[1], '', '', 0, 0, nil, one[2] or '',
      events.tails({name})[1])
    events.set_tail(name, cursor)
  end
end

-- Why all puts are refused; nil if they are not.
local function refusal()
  local new, seen = {}, {}
  for _, one in ipairs(puts) do
    local value, version = setting(one[1])
    local now = value and version or 0
    if now ~= one[3] then return {0, one[1], whole(now)} end
    if one[4] and version == 0 and not seen[one[1]] then
      seen[one[1]] = true
      new[one[5]] = (new[one[5]] or 0) + 1
    end
  end
  for tenant, more in pairs(new) do
    local known = tonumber(call('HGET', key('ruled'), scopes_field(tenant)) or '0')
    if known + more > most then return {2, tenant} end
  end
end

if #puts > 0 then
  local refused = refusal()
  if refused then return refused end
  base.insist()
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
