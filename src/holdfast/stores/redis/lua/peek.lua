-- peek: {tenants or nil, queues or nil, most, nonce or nil} -> the server's time, 1 if the claim of
-- this nonce was begun before, and the first of these tenants, for a claim over several shards to
-- share among them: {turn, tenant, weight, credit or -1, jobs it could start, 1 if it has no more}.
-- Repairs first. A nonce is known from now on: the shard that is asked for it sees each claim once.

local LINES_MAX = 64 -- Lines of a tenant whose jobs are counted; of the others one each.

local tenants, queues, most = ARGS[1], ARGS[2], ARGS[3]

-- Whether the claim was begun before; it is now.
local function begun(nonce)
  local name = claim_key(nonce .. '\0')
  local till = call('GET', name)
  if till and tonumber(till) > NOW then return true end
  call('SET', name, whole(NOW + REPEAT_US), 'PX', whole(REPEAT_US / 1000))
  return false
end

-- How many jobs a tenant could start, so many at most, and whether that is all it has.
local function ready(tenant)
  local room = math.min(most, gates.tenant_room(tenant))
  local found, number = lines.of_turn(tenant, queues, LINES_MAX), 0
  for _, queue in ipairs(found) do
    if number >= room then break end
    local its_room = math.min(room, gates.queue_room(tenant, queue))
    number = number + lines.ready(tenant .. '\0' .. queue, its_room)
  end
  if #found == LINES_MAX and number < room then
    local others = queues and #queues or lines.number(tenant)
    return math.min(room, number + others - LINES_MAX), false
  end
  return math.min(room, number), number <= room
end

core.insist()
if ARGS[4] and begun(ARGS[4]) then return {whole(SERVER_NOW), 1} end
repair.all()
local answer = {whole(SERVER_NOW), 0}
for _, one in ipairs(lines.tenants(tenants, queues, most)) do
  local tenant = one[2]
  local number, all = ready(tenant)
  answer[#answer + 1] = {
    whole(one[1]), tenant, whole(gates.weight(tenant)), lines.credit(tenant) or '-1', whole(number),
    all and 1 or 0,
  }
end
core.finish()
return answer
