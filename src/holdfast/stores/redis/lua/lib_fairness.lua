-- Fairness: whose turn it is. Weighted deficit round robin over tenants; the lines of a tenant take
-- turns within its own.
--
-- Claims for all queues read `tenants`. Claims for listed queues read the rings of these queues:
-- copies of the turns of their tenants. A turn in a ring may be out of date, which makes it too
-- small; a claim that meets one corrects it. `credit` is what is left of a turn that a full claim
-- cut short.

local CORRECTIONS_MAX = 1000 -- Per ring and call; after that turns are taken as they are.
local WRONG_MAX = 2000 -- Likewise, if none takes turns: the next claim goes on.
local TENANTS, CREDIT = key('tenants'), key('credit')

-- The first of {score, member} by their scores.
function fairness.by_turn(found, most)
  table.sort(found, function(one, other) return one[1] < other[1] end)
  for at = #found, most + 1, -1 do found[at] = nil end
  return found
end

-- A range with scores as {score, member}.
function fairness.pairs_of(range)
  local found = {}
  for at = 1, #range, 2 do found[#found + 1] = {tonumber(range[at + 1]), range[at]} end
  return found
end

-- The members of a sorted set among these, as {score, member}.
function fairness.among(name, members)
  local found = {}
  zflush(name)
  for at, score in ipairs(base.fetch('ZMSCORE', name, members)) do
    if score then found[#found + 1] = {tonumber(score), members[at]} end
  end
  return found
end

-- Adds the tenants of a range of a ring to `found`, and corrects what the ring says of them. Returns
-- how many take turns, and how many were wrong.
local function correct(ring, queue, range, found)
  local names, fine, wrong = {}, 0, 0
  for at = 1, #range, 2 do names[#names + 1] = range[at] end
  turns.load(names)
  for at, tenant in ipairs(names) do
    local turn = turns.turn(tenant)
    if not turn then
      zdrop(ring, tenant)
      call('SADD', key('away:' .. tenant), queue)
      wrong = wrong + 1
    else
      found[tenant], fine = turn, fine + 1
      if turn ~= range[2 * at] and tonumber(turn) ~= tonumber(range[2 * at]) then
        zput(ring, tenant, turn)
        wrong = wrong + 1
      end
    end
  end
  return fine, wrong
end

-- Adds the first tenants of a ring to `found`, with their turns. Turns only grow, so correct turns at
-- the head are the first.
local function first_of_ring(queue, most, found)
  local ring, corrected = lines.ring_key(queue), 0
  while true do
    zflush(ring)
    local range = call('ZRANGE', ring, 0, most - 1, 'WITHSCORES')
    local fine, wrong = correct(ring, queue, range, found)
    corrected = corrected + wrong
    if wrong == 0 or (corrected > CORRECTIONS_MAX and fine > 0) or corrected > WRONG_MAX then
      return
    end
  end
end

local function first_of_rings(queues, most)
  local turn_of, found = {}, {}
  for _, queue in ipairs(queues) do first_of_ring(queue, most, turn_of) end
  for tenant, turn in pairs(turn_of) do found[#found + 1] = {tonumber(turn), tenant} end
  return fairness.by_turn(found, most)
end

-- The first of these tenants that can be claimed from, as {turn, tenant}, in the order of their
-- turns. Both lists may be nil, which means all.
function fairness.tenants(tenants, queues, most)
  if most <= 0 then return {} end
  local found = {}
  if tenants then
    for _, one in ipairs(fairness.among(TENANTS, tenants)) do
      local open = lines.open_key(one[2])
      if not queues or #fairness.among(open, queues) > 0 then found[#found + 1] = one end
    end
    fairness.by_turn(found, most)
  elseif queues then
    found = first_of_rings(queues, most)
  else
    zflush(TENANTS)
    found = fairness.pairs_of(call('ZRANGE', TENANTS, 0, most - 1, 'WITHSCORES'))
  end
  for _, one in ipairs(found) do turns.know_turn(one[2], one[1]) end
  return found
end

-- Whether one of these can be claimed from. Reads only; in a long ring without tenants that take
-- turns the answer may be true.
function fairness.any(tenants, queues)
  if tenants or not queues then return #fairness.tenants(tenants, queues, 1) > 0 end
  for _, queue in ipairs(queues) do
    local names = call('ZRANGE', lines.ring_key(queue), 0, CORRECTIONS_MAX - 1)
    if #names == CORRECTIONS_MAX or #fairness.among(TENANTS, names) > 0 then return true end
  end
  return false
end

-- The first members of a sorted set, of these if any are named.
function fairness.first_members(name, members, most)
  if not members then
    zflush(name)
    return call('ZRANGE', name, 0, most - 1)
  end
  local found = fairness.by_turn(fairness.among(name, members), most)
  for at, one in ipairs(found) do found[at] = one[2] end
  return found
end

-- The first of a tenant's open lines, by queue, in the order of their last visits.
function fairness.lines(tenant, queues, most)
  local found = fairness.first_members(lines.open_key(tenant), queues, most)
  if not queues and #found < most then turns.know_open(tenant, #found) end
  return found
end

-- How many jobs a turn takes, as `scope.rounds`: for so many, whose weights are `weights` in all.
function fairness.rounds(room, number, weights)
  return math.max(1, math.floor(room / weights),
    math.floor(room * number / (weights * LINES_PER_CLAIM)))
end

-- How many jobs a line may give in one visit, as `scope.line_share`.
function fairness.line_share(room, number)
  return math.max(fairness.rounds(room, number, number), math.min(room, LINE_JOBS))
end

-- What is left of the last turns of these tenants; false where nothing is.
function fairness.credits(tenants)
  hflush(CREDIT)
  local found = base.fetch('HMGET', CREDIT, tenants)
  for at, tenant in ipairs(tenants) do turns.know_credit(tenant, found[at]) end
  return found
end

function fairness.use_credit(tenant)
  hput(CREDIT, tenant, false)
  turns.know_credit(tenant, false)
end

-- Ends the visit of a line: it comes after the other lines of its tenant, or is closed.
function fairness.end_visit(line, is_empty)
  if is_empty then
    turns.close(line)
  else
    zput(lines.open_key(line.tenant), line.queue, base.tick('visit'))
  end
  if has_settings(line.tenant) then lines.touch(line.tenant, line.queue) end
end

-- Ends the turn of a tenant that visited these queues and left them open; or, if a full claim or a
-- limit of the platform cut the turn short, keeps the rest of it for the next claim.
function fairness.end_turn(tenant, left, queues)
  if has_settings(tenant) then lines.touch_tenant(tenant) end
  local has_turn = turns.turn(tenant)
  if not has_turn and not turns.kept(tenant) then return end
  if left > 0 then
    hput(CREDIT, tenant, whole(left))
    turns.know_credit(tenant, left)
    return
  end
  local turn = base.tick('turn')
  if not has_turn then
    turns.keep(tenant, whole(turn))
    return
  end
  turns.set_turn(tenant, turn)
  for queue in pairs(queues) do zput(lines.ring_key(queue), tenant, turn) end
end
