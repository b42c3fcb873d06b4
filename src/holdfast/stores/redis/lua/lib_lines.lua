-- Lines (tenant, queue) of ready jobs, and whose turn it is.
--
--   line:<tenant, queue>  ready jobs by (priority, sequence)
--   tenants               tenants that can be claimed from, by turn: they have an open line, and room
--   open:<tenant>         its lines with jobs whose queue has room, the one served longest ago first
--   resting:<tenant>      its lines with jobs whose queue has none
--   ring:<queue>          tenants with an open line in it, by turn. A turn that is not the tenant's
--                         any more is too small, and is put right when it is met
--   away:<tenant>         open lines that are in no ring, for they were met there while it rested
--   credit                what a tenant may still take before its turn is over
--
-- Weighted deficit round robin over tenants; the lines of each take turns within its own. Idle and
-- resting tenants are not among the turns: they cost nothing. Room of a tenant and room of a queue
-- are kept apart, so that a tenant rests and goes on in one step, however many lines it has.

local RIGHT_MAX = 1000 -- Turns of a ring that one call puts right; then it takes them as they come.
local WAKE_MAX = 64    -- Lines of a tenant that are woken by name.

local touched, touched_list, touched_tenants = {}, {}, {}

local function line_name(tenant, queue) return tenant .. '\0' .. queue end
local function line_key(line) return key('line:' .. line) end
local function open_key(tenant) return key('open:' .. tenant) end
local function ring_key(queue) return key('ring:' .. queue) end

-- Looks at a line before the end of the call: it may have jobs now, or none any more.
function lines.touch(tenant, queue)
  local line = line_name(tenant, queue)
  if touched[line] then return end
  touched[line] = true
  touched_list[#touched_list + 1] = {line, tenant, queue, core.place}
end

-- Looks at a tenant, for its room may have changed.
function lines.touch_tenant(tenant) touched_tenants[tenant] = true end

function lines.push(row)
  zput(line_key(line_name(row.tenant, row.queue)), row.seq, -row.priority)
  lines.touch(row.tenant, row.queue)
end

function lines.drop(row)
  zdrop(line_key(line_name(row.tenant, row.queue)), row.seq)
  lines.touch(row.tenant, row.queue)
end

-- Wakes those who sleep on the lines of a tenant that have jobs.
function lines.wake(tenant)
  local resting = key('resting:' .. tenant)
  if call('ZCARD', open_key(tenant)) + call('SCARD', resting) > WAKE_MAX then
    core.wake_all()
    return
  end
  for _, queue in ipairs(call('ZRANGE', open_key(tenant), 0, -1)) do
    core.wake(line_name(tenant, queue))
  end
  for _, queue in ipairs(call('SMEMBERS', resting)) do core.wake(line_name(tenant, queue)) end
end

-- -- in and out of the turns ----------------------------------------------------------------------

-- Lets a tenant take turns, after all others. Returns its turn.
local function join(tenant)
  local turn = core.tick('turn')
  call('ZADD', TENANTS, turn, tenant)
  if ruled(tenant) then
    local away = key('away:' .. tenant)
    for _, queue in ipairs(call('SMEMBERS', away)) do
      call('ZADD', ring_key(queue), turn, tenant)
    end
    call('DEL', away)
  end
  return turn
end

local function leave(tenant)
  if call('ZREM', TENANTS, tenant) == 1 then call('HDEL', key('credit'), tenant) end
end

-- Lets a line take turns, after the others of its tenant.
local function open(tenant, queue)
  local number = core.next('visit')
  local opened = call('ZADD', open_key(tenant), 'NX', whole(number), queue) == 1
  if not opened and not ruled(tenant) then return true end
  local turn = call('ZSCORE', TENANTS, tenant)
  if opened then
    core.set_head('visit', number)
    if not turn and gates.tenant_room(tenant) > 0 then turn = join(tenant) end
    if turn then
      call('ZADD', ring_key(queue), turn, tenant)
    else
      call('SADD', key('away:' .. tenant), queue)
      gates.reopen_later('t', tenant, '', gates.of('t', tenant, ''))
    end
  end
  return turn
end

local function close(tenant, queue)
  if call('ZREM', open_key(tenant), queue) == 0 then return end
  if call('ZREM', ring_key(queue), tenant) == 0 then
    call('SREM', key('away:' .. tenant), queue)
  end
  if call('EXISTS', open_key(tenant)) == 0 then leave(tenant) end
end

-- Lets a line rest or go on, as its jobs and its queue allow now.
local function refresh(line, tenant, queue)
  zsettle(line_key(line))
  local has_jobs = call('EXISTS', line_key(line)) == 1
  local has_room = not ruled(tenant) or gates.queue_room(tenant, queue) > 0
  if ruled(tenant) then
    call(has_jobs and not has_room and 'SADD' or 'SREM', key('resting:' .. tenant), queue)
  end
  if not has_jobs then
    close(tenant, queue)
  elseif has_room then
    if open(tenant, queue) then core.wake(line) end
  else
    close(tenant, queue)
    gates.reopen_later('q', tenant, queue, gates.of('q', tenant, queue))
  end
end

-- The same of a tenant.
local function refresh_tenant(tenant)
  if call('EXISTS', open_key(tenant)) == 0 then return end
  if gates.tenant_room(tenant) > 0 then
    if not call('ZSCORE', TENANTS, tenant) then
      join(tenant)
      lines.wake(tenant)
    end
  else
    leave(tenant)
    gates.reopen_later('t', tenant, '', gates.of('t', tenant, ''))
  end
end

-- In the order in which they were touched: lines opened in a batch take turns in its order.
function lines.open_up()
  local list, tenants, place = touched_list, touched_tenants, core.place
  touched, touched_list, touched_tenants = {}, {}, {}
  for _, one in ipairs(list) do
    core.place = one[4]
    refresh(one[1], one[2], one[3])
  end
  core.place = place
  for tenant in pairs(tenants) do refresh_tenant(tenant) end
end

-- -- turns ----------------------------------------------------------------------------------------

local function by_turn(found, most)
  table.sort(found, function(one, other) return one[1] < other[1] end)
  for index = #found, most + 1, -1 do found[index] = nil end
  return found
end

-- A range with scores as {score, member}.
local function pairs_of(range)
  local found = {}
  for index = 1, #range, 2 do
    found[#found + 1] = {tonumber(range[index + 1]), range[index]}
  end
  return found
end

-- The members of a sorted set among these, as {score, member}.
local function among(name, members)
  local found = {}
  for index, score in ipairs(core.values(name, members, 'ZMSCORE')) do
    if score then found[#found + 1] = {tonumber(score), members[index]} end
  end
  return found
end

-- Puts right what a ring says of these tenants. Returns those that take turns, and how many it had
-- wrong.
local function right(queue, found)
  local names, fine, wrong = {}, {}, 0
  for index, one in ipairs(found) do names[index] = one[2] end
  for index, turn in ipairs(core.values(TENANTS, names, 'ZMSCORE')) do
    local tenant = names[index]
    if not turn then
      call('ZREM', ring_key(queue), tenant)
      call('SADD', key('away:' .. tenant), queue)
    elseif tonumber(turn) ~= found[index][1] then
      call('ZADD', ring_key(queue), turn, tenant)
    end
    if turn then fine[#fine + 1] = {tonumber(turn), tenant} end
    if not turn or tonumber(turn) ~= found[index][1] then wrong = wrong + 1 end
  end
  return fine, wrong
end

-- The first tenants of a ring. Turns only grow, so what is right at the head is first.
local function first(queue, most)
  local mended = 0
  while true do
    local range = call('ZRANGE', ring_key(queue), 0, most - 1, 'WITHSCORES')
    local found, wrong = right(queue, pairs_of(range))
    mended = mended + wrong
    if wrong == 0 or (mended > RIGHT_MAX and #found > 0) then return found end
  end
end

local function first_of(queues, most)
  if #queues == 1 then return first(queues[1], most) end
  local found, known = {}, {}
  for _, queue in ipairs(queues) do
    for _, one in ipairs(first(queue, most)) do
      if not known[one[2]] then found[#found + 1] = one end
      known[one[2]] = true
    end
  end
  return found
end

-- The first of these tenants that can be claimed from, as {turn, tenant}, in the order of their
-- turns. Both lists may be nil: all of them.
function lines.tenants(tenants, queues, most)
  if most <= 0 then return {} end
  if tenants then
    local found = {}
    for _, one in ipairs(among(TENANTS, tenants)) do
      if not queues or #among(open_key(one[2]), queues) > 0 then found[#found + 1] = one end
    end
    return by_turn(found, most)
  end
  if queues then return by_turn(first_of(queues, most), most) end
  return pairs_of(call('ZRANGE', TENANTS, 0, most - 1, 'WITHSCORES'))
end

-- Whether one of these can be claimed from; it may be said of a ring where many rest. Reads only.
function lines.any(tenants, queues)
  if tenants or not queues then return #lines.tenants(tenants, queues, 1) > 0 end
  for _, queue in ipairs(queues) do
    local names = call('ZRANGE', ring_key(queue), 0, RIGHT_MAX - 1)
    if #names == RIGHT_MAX or #among(TENANTS, names) > 0 then return true end
  end
  return false
end

-- The first of a tenant's lines that can be claimed from, by queue, in the order of their turns.
function lines.of_turn(tenant, queues, most)
  if not queues then return call('ZRANGE', open_key(tenant), 0, most - 1) end
  local found = by_turn(among(open_key(tenant), queues), most)
  for index, one in ipairs(found) do found[index] = one[2] end
  return found
end

-- How many lines of a tenant can be claimed from.
function lines.number(tenant) return call('ZCARD', open_key(tenant)) end

function lines.credit(tenant) return call('HGET', key('credit'), tenant) end

-- How many jobs a tenant may take in this turn.
function lines.allowance(tenant, quota)
  local credit = lines.credit(tenant)
  if not credit then return quota end
  call('HDEL', key('credit'), tenant)
  return tonumber(credit)
end

-- Ends a line's turn among those of its tenant.
function lines.visited(tenant, queue)
  local line = line_name(tenant, queue)
  zsettle(line_key(line))
  if call('EXISTS', line_key(line)) == 0 then
    close(tenant, queue)
  else
    call('ZADD', open_key(tenant), 'XX', core.tick('visit'), queue)
  end
  if ruled(tenant) then lines.touch(tenant, queue) end
end

-- Ends a tenant's turn, in which these queues were visited, or keeps what is left of it for the next
-- claim.
function lines.done(tenant, left, queues)
  if ruled(tenant) then lines.touch_tenant(tenant) end
  if left > 0 then
    if call('ZSCORE', TENANTS, tenant) then call('HSET', key('credit'), tenant, whole(left)) end
    return
  end
  local turn = core.tick('turn')
  if call('ZADD', TENANTS, 'XX', 'CH', turn, tenant) == 0 then return end
  for queue in pairs(queues) do call('ZADD', ring_key(queue), 'XX', turn, tenant) end
end

local FIRST = 4 -- Places of a line that are looked at first: few packs are many jobs.

-- The sequences of the first ready jobs of a line, taken out of it; none, and the place of a pack,
-- where that is the first.
function lines.pop(tenant, queue, number)
  local name = line_key(line_name(tenant, queue))
  zsettle(name)
  local found = call('ZRANGE', name, '0', whole(math.min(number, FIRST) - 1))
  if found[1] and packs.is(found[1]) then
    call('ZREM', name, found[1])
    return {}, found[1]
  end
  if #found == FIRST and number > FIRST then
    found = call('ZRANGE', name, '0', whole(number - 1))
  end
  local seqs = {}
  for index, member in ipairs(found) do
    if packs.is(member) then break end
    seqs[index] = member
  end
  if #seqs > 0 then call('ZREMRANGEBYRANK', name, '0', whole(#seqs - 1)) end
  return seqs
end

-- How many jobs stand in a line, so many at most.
function lines.ready(line, most)
  local number, at = call('ZCARD', line_key(line)), 0
  while number < most do
    local found = call('ZRANGE', key('packed:' .. line), at, at + 99)
    for _, member in ipairs(found) do number = number + packs.waiting(member) - 1 end
    if #found < 100 then break end
    at = at + 100
  end
  return math.min(number, most)
end
