-- claim: {a claim (lib_leasing), grants or nil, permits or nil} -> {leases, how many each grant
-- took, report, 1 if it was made before, 1 if more may start as soon as jobs end}. Or 0 if the shard
-- is one of several whose platform has settings, and there are no grants: then claim.py asks all
-- shards.
--
-- With one shard, the script repairs, then gives the tenants their turns until the claim is full. It
-- looks again at tenants of changed tiers, at more of them if it finds too few jobs. A claim over
-- several shards was shared by claim.py: grants are {tenant, allowed, room, position},
-- one for each tenant of this shard. While the platform has settings, a grant has also the jobs of
-- each scope and of each queue that are meant for its tenant, {name, number, ...}, and a job starts
-- only by permits, {scope, number, epoch, ...} (lib_ledger). The report tells what came of them. A claim that was made
-- before gives its own leases and no others.

local VISITS_MAX = 2000 -- Tenants without room that one claim meets; the next one goes on.

local claim, grants, given = leasing.read(ARGS[1]), ARGS[2], ARGS[3]

-- How many jobs the claim may still take.
local function left()
  local room = claim.limit - #leasing.leased
  return is_limited() and math.min(room, platform.room(WHOLE_STORE)) or room
end

-- Whether there may be less room for some jobs than in the whole store.
local function is_shared() return heads.aside > 0 or heads.platform > 0 and platform.has_parts() end

-- Gives each of these tenants its turn, until the claim is full. Returns how many have no more.
local function round(tenants, dry)
  local credits, weights, total, dried = fairness.credits(tenants), {}, 0, 0
  for at, tenant in ipairs(tenants) do
    weights[at] = has_settings(tenant) and limits.weight(tenant) or 1
    total = total + weights[at]
  end
  local times = fairness.rounds(left(), #tenants, total)
  if is_shared() then shares.begin(#tenants, total) end
  for at, tenant in ipairs(tenants) do
    local room = left()
    if room == 0 then break end
    if credits[at] then fairness.use_credit(tenant) end
    local allowed = tonumber(credits[at] or weights[at] * times)
    local turn = is_shared() and shares.turn(weights[at]) or nil
    local got, is_dry = leasing.turn(tenant, claim, allowed, room, turn)
    if is_limited() then platform.take_tokens(WHOLE_STORE, got) end
    if is_dry then
      dry[tenant] = true
      dried = dried + 1
    end
  end
  return dried
end

-- Of these tenants none is dry any more. Returns how many were.
local function undry(tenants, dry)
  local undried = 0
  for _, tenant in ipairs(tenants) do
    if dry[tenant] then undried = undried + 1 end
    dry[tenant] = nil
  end
  return undried
end

-- Lets in what waits at limits of the platform that have room by now. Returns whether anything, and
-- how many of the tenants were dry, which are not any more.
local function let_in(room, dry)
  local tenants = resume.for_claim(claim, room)
  return #tenants > 0, undry(tenants, dry)
end

local looks_left = REPAIR_PASSES_MAX - 1

-- Looks at a further portion of what a changed tier may have opened. Returns whether there was any,
-- and how many of its tenants were dry.
local function look_again(dry)
  if heads.looks == 0 or looks_left == 0 then return false, 0 end
  looks_left = looks_left - 1
  local looked = relook.more(claim.tenants)
  return #looked > 0, undry(looked, dry)
end

local function take_in_turn()
  local dry, dried, all_seen, room = {}, 0, false, left()
  while room > 0 and not all_seen do
    local found, any, undried = {}, false, 0
    if heads.aside > 0 then any, undried = let_in(room, dry) end
    dried = dried - undried
    -- A claim cannot serve more tenants than it has room for jobs. A lowered tier may have left
    -- thousands without room in the turns: then it takes more and more of them.
    local most = room + (heads.tiers > 0 and 2 or 1) * dried
    local tenants = fairness.tenants(claim.tenants, claim.queues, most)
    for _, one in ipairs(tenants) do
      if not dry[one[2]] then found[#found + 1] = one[2] end
    end
    if #found > 0 then
      dried = dried + round(found, dry)
    elseif not any then
      all_seen = true
    end
    room = left()
    all_seen = all_seen or is_shared() and shares.exhausted()
      or not is_shared() and #tenants < most and dried >= #tenants
    if all_seen and room > 0 and heads.looks > 0 then
      any, undried = look_again(dry)
      dried, all_seen = dried - undried, not any
    end
    if heads.tiers > 0 and dried > VISITS_MAX then return end
  end
end

-- How many of the leases that a repeated claim found belong to each grant.
local function counted()
  local numbers, taken = {}, {}
  for _, row in ipairs(leasing.leased) do numbers[row.tenant] = (numbers[row.tenant] or 0) + 1 end
  for at, grant in ipairs(grants) do taken[at] = numbers[grant[1]] or 0 end
  return taken
end

local function use_permits()
  for at = 1, #given, 3 do permits.use(given[at], given[at + 1], given[at + 2]) end
end

local function take_grants()
  local taken = {}
  for at, grant in ipairs(grants) do
    base.position = grant[4]
    fairness.use_credit(grant[1])
    local room, turn = grant[3], nil
    if is_limited() then
      room = math.min(room, platform.room(WHOLE_STORE))
      turn = shares.meant(limits.weight(grant[1]), grant[5] or {}, grant[6] or {})
    end
    taken[at] = leasing.turn(grant[1], claim, grant[2], room, turn)
  end
  return taken
end

if not grants and SHARDS > 1 and is_limited() then return 0 end
base.insist()
if given then use_permits() end
local known, taken = repeats.find(claim, leasing.leased), {}
if known then
  taken = grants and counted() or taken
elseif grants then
  taken = take_grants()
else
  repair.all()
  if heads.looks > 0 then relook.portion(claim.tenants) end
  take_in_turn()
end
local answer = leasing.answer(claim, known)
local is_behind = is_limited() and SHARDS == 1
  and (heads.aside > 0 or platform.room_now(WHOLE_STORE) == 0)
return {answer, taken, given and permits.report() or {}, known and 1 or 0, is_behind and 1 or 0}
