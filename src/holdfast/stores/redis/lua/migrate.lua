-- migrate: {} -> the format that a shard had, which has the newest now. Of format 3 is what tenants
-- take turns by; until then each line did by itself:
--
--   turns             lines that could be claimed from, by turn
--   ring:<queue>      their tenants by queue
--   lines:<tenant>    queues with ready jobs
--   credit            line -> what was left of its turn
--
-- And it counts the scopes of a tenant that ever had settings. One step, however many lines there are:
-- nobody works beside it.

local format = call('HGET', KEYS[2], 'format')
if format == LAYOUT then return tonumber(format) end

-- The tenant in the name of a scope's setting, after its length in letters, not bytes.
local function tenant_of(name)
  local letters, at = string.match(name, '^scope/%a+/(%d+):()')
  if not letters then return nil end
  local left, last = tonumber(letters), at - 1
  while left > 0 and last < #name do
    last = last + 1
    local after = string.byte(name, last + 1)
    if not after or after < 128 or after >= 192 then left = left - 1 end
  end
  return string.sub(name, at, last)
end

core.insist()
local open, scopes = call('ZRANGE', key('turns'), 0, -1), {}
call('DEL', key('turns'), key('credit'))
for _, line in ipairs(open) do
  local tenant, queue = string.match(line, '^([^%z]*)%z(.*)$')
  call('DEL', key('ring:' .. queue))
  lines.touch(tenant, queue)
end
for _, part in ipairs(call('ZRANGE', key('scopes:t'), 0, -1)) do
  local tenant = string.sub(part, 1, -2)
  for _, queue in ipairs(call('SMEMBERS', key('lines:' .. tenant))) do lines.touch(tenant, queue) end
  call('DEL', key('lines:' .. tenant))
end
for _, name in ipairs(call('HKEYS', key('settings'))) do
  local tenant = tenant_of(name)
  if tenant then scopes[tenant] = (scopes[tenant] or 0) + 1 end
end
for tenant, number in pairs(scopes) do call('HSET', key('ruled'), tenant .. '\0\0', number) end
core.set_head('format', tonumber(LAYOUT))
core.finish()
return tonumber(format or '2')
