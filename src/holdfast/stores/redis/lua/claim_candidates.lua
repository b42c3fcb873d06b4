-- claim_candidates: {tenants or nil, queues or nil, most, nonce or nil} -> {the server's time, 1 if
-- the claim of this nonce was begun before, candidates...}. The first step of a claim over several
-- shards: which tenants of this shard it can serve. Repairs first and looks again at tenants of
-- changed tiers, as every claim does.
--
-- A candidate is {turn, tenant, weight, credit or -1, jobs it could start, 1 if it has no more}.
-- The shard that is asked about a nonce stores it: of two equal claims only one goes on.

local LINES_MAX = 64 -- Lines of a tenant whose jobs are counted; each other line counts as one job.

local tenants, queues, most, nonce = ARGS[1], ARGS[2], ARGS[3], ARGS[4]

-- Whether the claim was begun before. It is begun now.
local function begun()
  local name = key('claim:' .. nonce .. '\0')
  local till = call('GET', name)
  if till and tonumber(till) > NOW then return true end
  call('SET', name, whole(NOW + CLAIM_REPEAT_US), 'PX', whole(CLAIM_REPEAT_US / 1000))
  return false
end

-- How many jobs a tenant could start, at most `most`, and whether it has no more.
local function ready(tenant)
  local room = math.min(most, limits.tenant_room(tenant))
  local found, number = fairness.lines(tenant, queues, LINES_MAX), 0
  for _, queue in ipairs(found) do
    if number >= room then break end
    local its_room = math.min(room, limits.queue_room(tenant, queue))
    number = number + math.min(its_room, call('ZCARD', lines.of(tenant, queue).key))
  end
  if #found == LINES_MAX and number < room then
    local others = queues and #queues or call('ZCARD', lines.open_key(tenant))
    return math.min(room, number + others - LINES_MAX), false
  end
  return math.min(room, number), number <= room
end

-- The tenants that the claim can serve.
local function served()
  if heads.looks > 0 then relook.portion(tenants) end
  local found, passes = fairness.tenants(tenants, queues, most), 1
  while heads.looks > 0 and #found < most and passes < REPAIR_PASSES_MAX do
    if #relook.more(tenants) == 0 then break end
    found, passes = fairness.tenants(tenants, queues, most), passes + 1
  end
  return found
end

base.insist()
if nonce and begun() then return {whole(SERVER_NOW), 1} end
repair.all()
local found = served()
base.finish()
local names, answer = {}, {whole(SERVER_NOW), 0}
for at, one in ipairs(found) do names[at] = one[2] end
local credits = fairness.credits(names)
for at, one in ipairs(found) do
  local number, all = ready(one[2])
  answer[at + 2] = {
    whole(one[1]), one[2], whole(limits.weight(one[2])), credits[at] or '-1', whole(number),
    all and 1 or 0,
  }
end
return answer
