-- settings: {puts, under or nil} -> {1, name, value, version, ...}, or {0, name, version} for a put
-- that is stale: then nothing is changed. A put is {name, value or nil, version, kind or nil, tenant,
-- part}; a scope's takes effect at once.

local puts, under = ARGS[1], ARGS[2]

-- The value, nil when it is not there, and the last version, which outlives it.
local function setting(name)
  local text = call('HGET', key('settings'), name)
  if not text then return nil, 0 end
  local version, there, value = string.match(text, '^(%d+) (%d)(.*)$')
  return there == '1' and value or nil, tonumber(version)
end

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
    gates.configure(one[4], one[5], one[6], one[2])
    local name = rows.name(one[5], one[1])
    local cursor = log.fact('configured', one[5], one[1], '', '', 0, 0, nil, one[2] or '',
      log.tails({name})[1])
    log.tail(name, cursor)
  end
end

for _, one in ipairs(puts) do
  local value, version = setting(one[1])
  local seen = value and version or 0
  if seen ~= one[3] then return {0, one[1], whole(seen)} end
end
if #puts > 0 then
  core.insist()
  for _, one in ipairs(puts) do put(one) end
  core.finish()
end

local names, answer = {}, {1}
if under then
  names = call('ZRANGEBYLEX', key('setting_names'), '[' .. under, '(' .. under .. '\255')
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
