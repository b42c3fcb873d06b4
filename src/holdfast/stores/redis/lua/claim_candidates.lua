-- claim_candidates: {tenants or nil, queues or nil, most, nonce or nil, platform or nil} -> {the
-- server's time, 1 if the claim of this nonce was begun before, candidates...}. The first step of a
-- claim over several shards: which tenants of this shard it can serve. Repairs first and looks again
-- at tenants of changed tiers, as every claim does.
--
-- A candidate is {turn, tenant, weight, credit or -1, jobs it could start, 1 if it has no more}.
-- The shard that is asked about a nonce stores it: of two equal claims only one goes on.
--
-- While the platform has settings, `platform` is {scopes with little room and their room, epochs by
-- scope, excluded groups or nil}: permits up to these epochs start nothing any more. Without it the answer is 2 in place of
-- 1, and nothing is done. With it a candidate has its classes too (lib_forecast), and comes after
-- {report (lib_permits), number of scopes with settings, 1 if anything waits at a limit, time in
-- which the next lease expires or '', 1 if more waits at limits that have room}.

local LINES_MAX = 64 -- Lines of a tenant whose jobs are counted; each other line counts as one job.

local tenants, queues, most, nonce, of_platform = unpack(ARGS, 1, 5)

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

-- The same under limits of the platform, and their classes by tenant. What has no room is set aside,
-- so others come to the front.
local function served_under_limits()
  local found, classes, room = {}, {}, math.min(most, platform.room(WHOLE_STORE))
  if room == 0 then return found, classes end
  local goes_on, excluded = true, set_of(of_platform[3])
  while #found < room and goes_on and not forecast.exhausted() do
    goes_on = false
    local let_in = {}
    if heads.aside > 0 then
      -- None of them may have room elsewhere: then others are let in.
      let_in = set_of(resume.for_claim({tenants = tenants, queues = queues}, room))
    end
    for _, one in ipairs(served()) do
      local tenant = one[2]
      local before = classes[tenant]
      if not before or let_in[tenant] then
        local is_new = not before or before[2] == 0
        local its, number, all = forecast.tenant(tenant, queues, room, excluded)
        classes[tenant] = {its, number, all}
        if is_new and number > 0 then found[#found + 1] = one end
        goes_on = goes_on or is_new
      end
    end
    lines.refresh_all(true)
  end
  return fairness.by_turn(found, room), classes
end

local function use_platform()
  local rooms, epochs = {}, of_platform[2]
  for at = 1, #of_platform[1], 2 do
    rooms[of_platform[1][at]] = of_platform[1][at + 1]
    permits.tell(of_platform[1][at])
  end
  for at = 1, #epochs, 2 do permits.fence(epochs[at], epochs[at + 1]) end
  permits.allow(rooms, UNLIMITED)
end

base.insist()
if is_limited() and not of_platform then return {whole(SERVER_NOW), 2} end
if nonce and begun() then return {whole(SERVER_NOW), 1} end
if of_platform then use_platform() end
repair.all()
local found, classes = nil, nil
if of_platform then found, classes = served_under_limits() else found = served() end
base.finish()
local names, answer = {}, {whole(SERVER_NOW), 0}
if of_platform then
  local first = call('ZRANGE', key('held'), 0, 0, 'WITHSCORES')[2]
  answer[3] = {
    permits.report(), heads.platform, heads.aside, first and whole(first - NOW) or '',
    heads.aside > 0 and resume.any(tenants, queues) and 1 or 0,
  }
end
for at, one in ipairs(found) do names[at] = one[2] end
local credits = fairness.credits(names)
for at, one in ipairs(found) do
  local tenant, number, all = one[2], nil, nil
  local of_tenant = classes and classes[tenant]
  if of_tenant then number, all = of_tenant[2], of_tenant[3] else number, all = ready(tenant) end
  answer[#answer + 1] = {
    whole(one[1]), tenant, whole(limits.weight(tenant)), credits[at] or '-1', whole(number),
    all and 1 or 0, of_tenant and of_tenant[1],
  }
end
return answer
