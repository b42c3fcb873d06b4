-- Lines (tenant, queue) of ready jobs, and which of them can be claimed from.
--
--   line:<tenant, queue>  ready jobs by (priority, sequence)
--   tenants               tenants that can be claimed from, by turn: with an open line, and room
--   open:<tenant>         its lines with jobs whose queue has room, by their last visit
--   resting:<tenant>      its lines with jobs whose queue has no room
--   ring:<queue>          tenants with an open line in a queue, by turn (see lib_fairness)
--   away:<tenant>         open lines that were removed from their ring while the tenant had no room
--
-- Idle tenants, and tenants and queues without room, are in no turn and cost a claim nothing. The
-- room of a tenant and that of a queue are kept apart, so that a tenant pauses and continues in one
-- step, however many lines it has.

local WAKE_MAX = 64 -- Lines of a tenant that are woken by name.
local TENANTS = key('tenants')

local known, touched, touched_tenants = {}, {}, {}
-- What this call knows of tenants: the turn (false if it takes none), the number of open lines, and
-- whether it has no credit.
local turns, open_counts, without_credit = {}, {}, {}

function lines.open_key(tenant) return key('open:' .. tenant) end
function lines.ring_key(queue) return key('ring:' .. queue) end

-- A line: its name and its key. Made once per call.
function lines.of(tenant, queue)
  local of_tenant = known[tenant]
  if not of_tenant then
    of_tenant = {}
    known[tenant] = of_tenant
  end
  local line = of_tenant[queue]
  if not line then
    local name = tenant .. '\0' .. queue
    line = {tenant = tenant, queue = queue, name = name, key = key('line:' .. name)}
    of_tenant[queue] = line
  end
  return line
end

-- Has a line checked at the end of the call: it may have jobs or room now, or not any more.
function lines.touch(tenant, queue)
  local line = lines.of(tenant, queue)
  if line.touched then return line end
  line.touched, line.position = true, base.position
  touched[#touched + 1] = line
  return line
end

-- The same of a tenant, whose room may have changed.
function lines.touch_tenant(tenant) touched_tenants[tenant] = true end

function lines.push(row) zput(lines.touch(row.tenant, row.queue).key, row.seq, -row.priority) end
function lines.drop(row) zdrop(lines.touch(row.tenant, row.queue).key, row.seq) end

-- The same for a line to which the caller adds jobs itself.
function lines.pushed(tenant, queue)
  local line = lines.touch(tenant, queue)
  line.has_jobs = true
  return line
end

-- Wakes the workers that sleep on lines of a tenant that have jobs.
function lines.wake(tenant)
  local resting, open = key('resting:' .. tenant), lines.open_key(tenant)
  zflush(open)
  if call('ZCARD', open) + call('SCARD', resting) > WAKE_MAX then
    base.wake_all()
    return
  end
  for _, queue in ipairs(call('ZRANGE', open, 0, -1)) do base.wake(tenant .. '\0' .. queue) end
  for _, queue in ipairs(call('SMEMBERS', resting)) do base.wake(tenant .. '\0' .. queue) end
end

-- -- taking turns ---------------------------------------------------------------------------------

-- The turn of a tenant; false if it takes none.
function lines.turn(tenant)
  if turns[tenant] == nil then turns[tenant] = call('ZSCORE', TENANTS, tenant) end
  return turns[tenant]
end

-- Records what a claim has read.
function lines.know_turn(tenant, turn) turns[tenant] = turn end
function lines.know_open(tenant, number) open_counts[tenant] = number end
function lines.know_credit(tenant, credit) without_credit[tenant] = not credit end

function lines.set_turn(tenant, turn)
  turns[tenant] = turn
  zput(TENANTS, tenant, turn)
end

-- Lets a tenant take turns, after all others.
local function join(tenant)
  local turn = base.tick('turn')
  lines.set_turn(tenant, turn)
  if has_settings(tenant) then
    local away = key('away:' .. tenant)
    for _, queue in ipairs(call('SMEMBERS', away)) do zput(lines.ring_key(queue), tenant, turn) end
    call('DEL', away)
  end
  return turn
end

-- The turn of a tenant that opens a line. It joins if it takes no turns and has room; false if not.
local function turn_or_join(tenant)
  local limited = has_settings(tenant)
  if turns[tenant] == nil and not limited then
    local turn = base.next('turn')
    if call('ZADD', TENANTS, 'NX', whole(turn), tenant) == 1 then
      base.set_head('turn', turn)
      turns[tenant] = turn
    end
  end
  return lines.turn(tenant) or (not limited or limits.tenant_room(tenant) > 0) and join(tenant)
end

local function leave(tenant)
  if turns[tenant] == false then return end
  turns[tenant] = false
  zdrop(TENANTS, tenant)
  if not without_credit[tenant] then hput(key('credit'), tenant, false) end
end

-- Opens a line, after the other lines of its tenant. Returns whether it was closed.
local function open(line)
  local tenant, queue, number = line.tenant, line.queue, base.next('visit')
  local name = lines.open_key(tenant)
  zflush(name)
  if call('ZADD', name, 'NX', whole(number), queue) == 0 then return false end
  base.set_head('visit', number)
  open_counts[tenant] = nil
  local turn = turn_or_join(tenant)
  if turn then
    zput(lines.ring_key(queue), tenant, turn)
  else
    call('SADD', key('away:' .. tenant), queue)
    limits.recheck_later('t', tenant, '', limits.of('t', tenant, ''))
  end
  return true
end

-- Closes a line that has no jobs, or whose queue has no room.
function lines.close(line)
  local tenant, queue = line.tenant, line.queue
  local name = lines.open_key(tenant)
  zdrop(name, queue)
  zdrop(lines.ring_key(queue), tenant)
  if has_settings(tenant) then call('SREM', key('away:' .. tenant), queue) end
  local left = open_counts[tenant] and open_counts[tenant] - 1
  open_counts[tenant] = left
  if not left then
    zflush(name)
    left = call('EXISTS', name)
  end
  if left == 0 then leave(tenant) end
end

-- Opens or closes a line, as its jobs and the room of its queue are now.
local function refresh(line)
  local tenant, queue = line.tenant, line.queue
  open_counts[tenant] = nil -- The line may be closed already: its open lines are counted again.
  local has_jobs = zflush(line.key) or line.has_jobs or call('EXISTS', line.key) == 1
  line.has_jobs = nil
  local limited = has_settings(tenant)
  local has_room = not limited or limits.queue_room(tenant, queue) > 0
  if limited then
    call(has_jobs and not has_room and 'SADD' or 'SREM', key('resting:' .. tenant), queue)
  end
  if has_jobs and has_room then
    local opened = open(line)
    -- Workers that sleep were woken when the line opened. Readers of the log want to know each job.
    if (opened or EVENTS) and (not limited or lines.turn(tenant)) then base.wake(line.name) end
    return
  end
  lines.close(line)
  if has_jobs then limits.recheck_later('q', tenant, queue, limits.of('q', tenant, queue)) end
end

-- Lets a tenant take turns or not, as its room is now.
local function refresh_tenant(tenant)
  local name = lines.open_key(tenant)
  zflush(name)
  if call('EXISTS', name) == 0 then return end
  if limits.tenant_room(tenant) > 0 then
    if not lines.turn(tenant) then
      join(tenant)
      lines.wake(tenant)
    end
  else
    leave(tenant)
    limits.recheck_later('t', tenant, '', limits.of('t', tenant, ''))
  end
end

-- Checks all touched lines in the order in which they were touched: lines that a batch opens take
-- turns in the order of the batch.
function lines.refresh_all()
  local list, tenants, position = touched, touched_tenants, base.position
  touched, touched_tenants = {}, {}
  for _, line in ipairs(list) do
    line.touched, base.position = false, line.position
    refresh(line)
  end
  base.position = position
  for tenant in pairs(tenants) do refresh_tenant(tenant) end
end
