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

local OPEN_MAX = 1000 -- Lines that one command opens.

local known, touched, touched_tenants = {}, {}, {}

function lines.open_key(tenant) return key('open:' .. tenant) end
function lines.ring_key(queue) return key('ring:' .. queue) end

-- A line: its name and its key. Made once per call. Its position is set while it is touched.
function lines.of(tenant, queue)
  local of_tenant = known[tenant]
  if not of_tenant then
    of_tenant = {}
    known[tenant] = of_tenant
  end
  local line = of_tenant[queue]
  if not line then
    local name = tenant .. '\0' .. queue
    line = {tenant = tenant, queue = queue, name = name, key = key('line:' .. name),
      position = false, has_jobs = false, visit = false, popped = false, goes_on = false}
    of_tenant[queue] = line
  end
  return line
end

-- Has a line checked at the end of the call: it may have jobs or room now, or not any more.
function lines.touch(tenant, queue)
  local line = lines.of(tenant, queue)
  if line.position then return line end
  line.position = base.position
  touched[#touched + 1] = line
  return line
end

-- The same of a tenant, whose room may have changed.
function lines.touch_tenant(tenant) touched_tenants[tenant] = true end

function lines.push(row) zput(lines.touch(row.tenant, row.queue).key, row.seq, -row.priority) end
function lines.drop(row)
  zdrop(lines.touch(row.tenant, row.queue).key, row.seq)
  if heads.aside > 0 then aside.drop(row) end
end

-- -- which lines are open -------------------------------------------------------------------------

-- Adds lines to the open ones of a tenant, after these. Returns those that were not open, nil if
-- all were.
local function add_open(tenant, list)
  local name, before, values = lines.open_key(tenant), heads.visit, {nil, nil}
  zflush(name)
  for at = 1, #list do
    local line = list[at]
    base.position = line.position
    line.visit = base.next('visit')
    heads.visit = line.visit
    values[2 * at - 1], values[2 * at] = whole(line.visit), line.queue
  end
  local added = call('ZADD', name, 'NX', unpack(values))
  if added == 0 then
    heads.visit = before
    return nil
  end
  base.set_head('visit', heads.visit)
  if added == #list then return list end
  local queues, opened = {}, {}
  for at, line in ipairs(list) do queues[at] = line.queue end
  for at, visit in ipairs(base.fetch('ZMSCORE', name, queues)) do
    if tonumber(visit) == list[at].visit then opened[#opened + 1] = list[at] end
  end
  return opened
end

-- Opens lines of a tenant that have jobs and room. `quiet`: nobody is woken.
local function open(tenant, list, quiet)
  local opened = add_open(tenant, list)
  if opened then
    base.position = opened[1].position
    local turn = turns.turn_or_join(tenant)
    for _, line in ipairs(opened) do
      if turn then
        zput(lines.ring_key(line.queue), tenant, turn)
      else
        call('SADD', key('away:' .. tenant), line.queue)
      end
    end
    if not turn then limits.recheck_later('t', tenant, '', limits.of('t', tenant, '')) end
  end
  if quiet or (has_settings(tenant) and not turns.turn(tenant)) then return end
  -- Workers that sleep were woken when the line opened. Readers of the log want to know each job.
  local told = EVENTS and list or opened
  for at = 1, told and #told or 0 do base.wake(told[at].name) end
end

-- Whether a line can be claimed from, as its jobs and the room of its queue are now. If it has jobs
-- but no room, time may make room.
local function is_ready(line)
  local tenant, queue = line.tenant, line.queue
  local has_jobs = zflush(line.key) or line.has_jobs or call('EXISTS', line.key) == 1
  line.has_jobs = false
  if not has_settings(tenant) then return has_jobs end
  local has_room = limits.queue_room(tenant, queue) > 0
  local resting = key('resting:' .. tenant)
  if has_jobs and not has_room then
    call('SADD', resting, queue)
    limits.recheck_later('q', tenant, queue, limits.of('q', tenant, queue))
  elseif call('SREM', resting, queue) == 1 and heads.tiers > 0 then
    relook.drop('q', tenant, queue)
  end
  return has_jobs and has_room
end

-- Checks all touched lines. Lines that a batch opens take turns in the order of the batch. Those of
-- a tenant are opened together, and before others are closed, so that it keeps its turn. A line
-- that waits for room over all tenants stays as it is. `quiet`: nobody is woken.
function lines.refresh_all(quiet)
  local list, tenants, position = touched, touched_tenants, base.position
  touched, touched_tenants = {}, {}
  local ready, by_tenant, closed = {}, {}, {}
  for at = 1, #list do
    local line = list[at]
    local others = by_tenant[line.tenant]
    if heads.aside > 0 and aside.holds(line.tenant, line.queue) then
      line.has_jobs = false
    elseif not is_ready(line) then
      closed[#closed + 1] = line
    elseif others and #others < OPEN_MAX then
      others[#others + 1] = line
    else
      by_tenant[line.tenant] = {line}
      ready[#ready + 1] = by_tenant[line.tenant]
    end
  end
  for at = 1, #ready do open(ready[at][1].tenant, ready[at], quiet) end
  for at = 1, #closed do
    turns.know_open(closed[at].tenant, nil) -- It may be closed already: open lines are counted.
    turns.close(closed[at])
  end
  for at = 1, #list do list[at].position = false end
  base.position = position
  for tenant in pairs(tenants) do turns.refresh(tenant, quiet) end
end
