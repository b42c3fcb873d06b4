-- Resume: which of the lines and jobs that wait at limits of the platform (lib_aside) a claim lets
-- in again: as many as there is room for, in the order of the turns of their tenants.
--
-- `ready` names the scopes at which there may be room by now, so a claim reads nothing of the
-- others. Over several shards it names those at which anything waits. A set's copy of a turn that is out of date is too small; who meets it corrects it.

local CORRECTIONS_MAX = 1000 -- Per set and call; after that turns are taken as they are.
local READY, KEPT, TENANTS = key('ready'), key('kept'), key('tenants')

local left = 2 * ASIDE_MAX -- Lines and jobs that this call may let in.

-- The types at which there may be room by now, and by tenant those at which it waits.
local types, types_of = {}, {}

-- -- the first of those that wait -----------------------------------------------------------------

-- Corrects the turns of {turn, tenant} in a set. Returns how many were wrong.
local function correct(name, found)
  local tenants, wrong = {}, 0
  for at, one in ipairs(found) do tenants[at] = one[2] end
  zflush(TENANTS)
  hflush(KEPT)
  local known, kept = base.fetch('ZMSCORE', TENANTS, tenants), base.fetch('HMGET', KEPT, tenants)
  for at, one in ipairs(found) do
    local turn = tonumber(known[at] or kept[at]) or one[1]
    if turn > one[1] then
      one[1] = turn
      zput(name, one[2], turn)
      wrong = wrong + 1
    end
  end
  return wrong
end

-- The first tenants of a set. Turns only grow, so correct turns at the head are the first.
local function head_of(name, most)
  local corrected = 0
  while true do
    zflush(name)
    local found = fairness.pairs_of(call('ZRANGE', name, 0, most - 1, 'WITHSCORES'))
    local wrong = correct(name, found)
    corrected = corrected + wrong
    if wrong == 0 or corrected > CORRECTIONS_MAX then return found end
  end
end

local function has(list, name)
  for _, one in ipairs(list) do
    if one == name then return true end
  end
  return false
end

-- Of the tenants that a claim names, those that wait at a scope, in the queues that it names.
local function named(scope, tenants, queues)
  local name, found = aside.key(scope), {}
  local is_type = aside.parts(scope) == 'y'
  for _, one in ipairs(fairness.among(name, tenants)) do
    local in_queue = not (queues and is_type)
      or #fairness.among(aside.key(scope, 't', one[2]), queues) > 0
    if in_queue then found[#found + 1] = one end
  end
  return found
end

-- The first tenants that wait at a scope and that a claim may serve, in the order of their turns.
local function first_tenants(scope, most, tenants, queues)
  local kind, part = aside.parts(scope)
  if kind == 'q' and queues and not has(queues, part) then return {} end
  if tenants then
    local found = named(scope, tenants, queues)
    correct(aside.key(scope), found)
    return fairness.by_turn(found, most)
  end
  if kind == 'q' or not queues then return head_of(aside.key(scope), most) end
  local found, known = {}, {}
  for _, queue in ipairs(queues) do
    for _, one in ipairs(head_of(aside.key(scope, 'q', queue), most)) do
      if not known[one[2]] then found[#found + 1] = one end
      known[one[2]] = true
    end
  end
  return fairness.by_turn(found, most)
end

-- -- let in ---------------------------------------------------------------------------------------

-- Lets in up to `most` jobs of a tenant, from its queues in turn. Returns how many.
local function let_tenant_in(scope, tenant, most, queues)
  local found, number = fairness.first_members(aside.key(scope, 't', tenant), queues, most), 0
  local share = fairness.rounds(most, #found, #found)
  for _, queue in ipairs(found) do
    if number >= most then break end
    number = number + aside.let_jobs_in(scope, tenant, queue, math.min(share, most - number))
  end
  return number
end

-- Lets in what waits at one scope, for so many jobs, and adds the tenants. Returns how many.
local function let_in_at(scope, most, claim, tenants)
  local found, number = first_tenants(scope, most, claim.tenants, claim.queues), 0
  if #found == 0 then return 0 end
  local share = fairness.rounds(most, #found, #found)
  for _, one in ipairs(found) do
    local more = 1
    if number >= most then break end
    if aside.parts(scope) == 'q' then
      aside.let_line_in(scope, one[2])
    else
      more = let_tenant_in(scope, one[2], math.min(share, most - number), claim.queues)
    end
    if more > 0 then tenants[#tenants + 1] = one[2] end
    number = number + more
  end
  return number
end

-- Nothing waits any more, and there are no settings: scripts need not look here.
local function forget_all()
  base.set_head('aside', 0)
  hflush(KEPT)
  call('DEL', KEPT)
end

local function ready()
  zflush(READY)
  local scopes = call('ZRANGE', READY, 0, -1)
  types, types_of = {}, {}
  for _, scope in ipairs(scopes) do
    if aside.parts(scope) == 'y' then types[#types + 1] = scope end
  end
  return scopes
end

-- Lets in what waits where there is room, enough for a claim of so many jobs. Returns the tenants.
function resume.for_claim(claim, wanted)
  local tenants, scopes = {}, ready()
  for _, scope in ipairs(scopes) do
    local most = math.min(wanted, left, platform.room(scope))
    if most > 0 then left = left - let_in_at(scope, most, claim, tenants) end
    zflush(aside.key(scope))
    local is_full = SHARDS == 1 and platform.room(scope) == 0
    if is_full or call('EXISTS', aside.key(scope)) == 0 then zdrop(READY, scope) end
  end
  if #scopes == 0 and heads.platform == 0 and heads.aside > 0 then forget_all() end
  if #tenants > 0 then
    groups.refresh_all()
    lines.refresh_all(true)
  end
  return tenants
end

-- Lets in the first jobs of a line that wait for types with room, so that a claim of so many jobs
-- takes none of the line before them.
function resume.for_line(line, wanted)
  local tenant = line.tenant
  if #types == 0 then return end
  types_of[tenant] = types_of[tenant]
    or fairness.first_members(key('aside_of:' .. tenant), types, #types)
  for _, scope in ipairs(types_of[tenant]) do
    local name, entered, most_in = aside.key(scope, 't', tenant), 0, wanted
    -- Over several shards nothing starts yet, so nothing takes of the room.
    if SHARDS > 1 then most_in = math.min(wanted, platform.room(scope)) end
    while entered < most_in and left > 0 and platform.room(scope) > 0 do
      if #fairness.among(name, {line.queue}) == 0 then break end
      local most = math.min(left, most_in - entered)
      local number, more = aside.let_jobs_in(scope, tenant, line.queue, most)
      entered, left = entered + more, left - number
    end
  end
  groups.refresh_all()
end

-- Whether anything waits at a scope that a claim may serve. Reads only.
local function has_waiting(scope, tenants, queues)
  local kind, part = aside.parts(scope)
  if kind == 'q' and queues and not has(queues, part) then return false end
  if tenants then return #named(scope, tenants, queues) > 0 end
  local names = {aside.key(scope)}
  if kind == 'y' and queues then
    for at, queue in ipairs(queues) do names[at] = aside.key(scope, 'q', queue) end
  end
  return call('EXISTS', unpack(names)) > 0
end

-- The scopes at which anything waits that a claim may serve. Reads only.
function resume.waiting(tenants, queues)
  local found = {}
  for _, scope in ipairs(ready()) do
    if has_waiting(scope, tenants, queues) then found[#found + 1] = scope end
  end
  return found
end

-- Whether a claim may let in anything. Reads only.
function resume.any(tenants, queues)
  for _, scope in ipairs(ready()) do
    if platform.room_now(scope) > 0 and has_waiting(scope, tenants, queues) then return true end
  end
  return false
end
