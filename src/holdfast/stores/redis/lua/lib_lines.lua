-- Lines (tenant, queue) of ready jobs, and whose turn it is.
--
--   line:<tenant, queue>  ready jobs by (priority, sequence)
--   turns, ring:<queue>   lines that can be claimed from, by their turn
--   lines:<tenant>        its queues with ready jobs, whether they rest or take turns
--   credit                what a line may still take before its turn is over
--
-- Weighted deficit round robin. Idle and resting lines are not among the turns: they cost nothing.

local touched, touched_list, touched_tenants = {}, {}, {}

local function line_name(tenant, queue) return tenant .. '\0' .. queue end
local function line_key(line) return key('line:' .. line) end
local function parts(line) return string.match(line, '^([^%z]*)%z(.*)$') end

-- Looks at a line before the end of the call: it may have jobs now, or none any more.
function lines.touch(tenant, queue)
  local line = line_name(tenant, queue)
  if touched[line] then return end
  touched[line] = true
  touched_list[#touched_list + 1] = {line, tenant, queue, core.place}
end

-- Looks at all lines of a tenant, for its room may have changed.
function lines.touch_tenant(tenant) touched_tenants[tenant] = true end

function lines.push(row)
  zput(line_key(line_name(row.tenant, row.queue)), row.seq, -row.priority)
  lines.touch(row.tenant, row.queue)
end

function lines.drop(row)
  zdrop(line_key(line_name(row.tenant, row.queue)), row.seq)
  lines.touch(row.tenant, row.queue)
end

-- The lines of a tenant that have ready jobs, open or resting.
function lines.of(tenant)
  local found = call('SMEMBERS', key('lines:' .. tenant))
  for index, queue in ipairs(found) do found[index] = line_name(tenant, queue) end
  return found
end

local function join(line, tenant, queue)
  local turn = core.tick('turn')
  call('ZADD', TURNS, turn, line)
  call('ZADD', key('ring:' .. queue), turn, tenant)
  call('SADD', key('lines:' .. tenant), queue)
end

local function rest(line, tenant, queue)
  call('ZREM', TURNS, line)
  call('ZREM', key('ring:' .. queue), tenant)
  call('HDEL', key('credit'), line)
end

local function empty(line, tenant, queue)
  rest(line, tenant, queue)
  call('SREM', key('lines:' .. tenant), queue)
end

-- Lets a line rest or go on, as its jobs, its tenant and its queue allow now.
local function refresh(line, tenant, queue)
  zsettle(line_key(line))
  local open = call('ZSCORE', TURNS, line)
  if call('EXISTS', line_key(line)) == 0 then
    empty(line, tenant, queue)
  elseif not ruled(tenant) or gates.line_room(tenant, queue) > 0 then
    if not open then join(line, tenant, queue) end
    core.wake(line)
  else
    if open then rest(line, tenant, queue) end
    call('SADD', key('lines:' .. tenant), queue)
    gates.reopen_later('t', tenant, '', gates.of('t', tenant, ''))
    gates.reopen_later('q', tenant, queue, gates.of('q', tenant, queue))
  end
end

-- In the order in which they were touched: lines opened in a batch take turns in its order.
function lines.open_up()
  for tenant in pairs(touched_tenants) do
    for _, line in ipairs(lines.of(tenant)) do lines.touch(parts(line)) end
  end
  local list, place = touched_list, core.place
  touched, touched_list, touched_tenants = {}, {}, {}
  for _, one in ipairs(list) do
    core.place = one[4]
    refresh(one[1], one[2], one[3])
  end
  core.place = place
end

-- -- turns ----------------------------------------------------------------------------------------

local function add_ring(found, queue, most)
  local ring = call('ZRANGE', key('ring:' .. queue), 0, most - 1, 'WITHSCORES')
  for index = 1, #ring, 2 do
    found[#found + 1] = {tonumber(ring[index + 1]), ring[index], queue}
  end
end

local function add_tenant(found, tenant, queues)
  for _, queue in ipairs(call('SMEMBERS', key('lines:' .. tenant))) do
    if not queues or queues[queue] then
      local turn = call('ZSCORE', TURNS, line_name(tenant, queue))
      if turn then found[#found + 1] = {tonumber(turn), tenant, queue} end
    end
  end
end

-- The first of these lines, as {turn, tenant, queue}, in the order of their turns.
function lines.open(tenants, queues, most)
  local found = {}
  if most <= 0 then return found end
  if tenants then
    for tenant in pairs(tenants) do add_tenant(found, tenant, queues) end
  elseif queues then
    for queue in pairs(queues) do add_ring(found, queue, most) end
  else
    local turns = call('ZRANGE', TURNS, 0, most - 1, 'WITHSCORES')
    for index = 1, #turns, 2 do
      found[#found + 1] = {tonumber(turns[index + 1]), parts(turns[index])}
    end
    return found
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  for index = #found, most + 1, -1 do found[index] = nil end
  return found
end

-- How many jobs a line may take in this turn.
function lines.allowance(tenant, queue, quota)
  local line = line_name(tenant, queue)
  local credit = call('HGET', key('credit'), line)
  if not credit then return quota end
  call('HDEL', key('credit'), line)
  return tonumber(credit)
end

-- Ends a line's turn, or keeps what is left of it for the next claim.
function lines.done(tenant, queue, left)
  local line = line_name(tenant, queue)
  zsettle(line_key(line))
  if call('EXISTS', line_key(line)) == 0 then
    empty(line, tenant, queue)
    return
  end
  if left > 0 then
    call('HSET', key('credit'), line, whole(left))
  else
    local turn = core.tick('turn')
    call('ZADD', TURNS, turn, line)
    call('ZADD', key('ring:' .. queue), turn, tenant)
  end
  if ruled(tenant) then lines.touch(tenant, queue) end
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
