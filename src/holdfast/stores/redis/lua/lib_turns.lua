-- Turns of tenants: which tenants can be claimed from, and what this call knows of them. lib_lines
-- lists the keys. A call that opens and closes no line does not load this library.

local WAKE_MAX = 64 -- Lines of a tenant that are woken by name.
local TENANTS, KEPT = key('tenants'), key('kept')

-- What this call knows of tenants: the turn (false if it takes none), the number of open lines, and
-- whether it has no credit.
local known, open_counts, without_credit, kept = {}, {}, {}, {}

-- The turn of a tenant; false if it takes none.
function turns.turn(tenant)
  if known[tenant] == nil then known[tenant] = call('ZSCORE', TENANTS, tenant) end
  return known[tenant]
end

-- Reads the turns of these tenants, together.
function turns.load(tenants)
  local missing = {}
  for _, tenant in ipairs(tenants) do
    if known[tenant] == nil then missing[#missing + 1] = tenant end
  end
  for at, turn in ipairs(base.fetch('ZMSCORE', TENANTS, missing)) do known[missing[at]] = turn end
end

-- Records what a claim has read.
function turns.know_turn(tenant, turn) known[tenant] = turn end
function turns.know_open(tenant, number) open_counts[tenant] = number end
function turns.know_credit(tenant, credit) without_credit[tenant] = not credit end

function turns.set_turn(tenant, turn)
  known[tenant] = turn
  zput(TENANTS, tenant, turn)
end

-- The turn that a tenant kept, which takes none because all that it has waits at limits of the
-- platform; false if it kept none.
function turns.kept(tenant)
  if heads.aside == 0 then return false end
  if kept[tenant] == nil then
    hflush(KEPT)
    kept[tenant] = call('HGET', KEPT, tenant)
  end
  return kept[tenant]
end

function turns.keep(tenant, turn)
  kept[tenant] = turn
  hput(KEPT, tenant, turn)
end

function turns.forget(tenant)
  if turns.kept(tenant) then turns.keep(tenant, false) end
end

-- Lets a tenant take turns: after all others, or where it kept its turn.
local function join(tenant)
  local turn = turns.kept(tenant)
  if turn then turns.keep(tenant, false) else turn = base.tick('turn') end
  turns.set_turn(tenant, turn)
  if has_settings(tenant) then
    local away = key('away:' .. tenant)
    for _, queue in ipairs(call('SMEMBERS', away)) do zput(lines.ring_key(queue), tenant, turn) end
    call('DEL', away)
  end
  return turn
end

-- The turn of a tenant that opens a line. It joins if it takes no turns and has room; false if not.
function turns.turn_or_join(tenant)
  local limited = has_settings(tenant)
  open_counts[tenant] = nil
  if known[tenant] == nil and not limited and heads.aside == 0 then
    local turn = base.next('turn')
    if call('ZADD', TENANTS, 'NX', whole(turn), tenant) == 1 then
      base.set_head('turn', turn)
      known[tenant] = turn
    end
  end
  return turns.turn(tenant) or (not limited or limits.tenant_room(tenant) > 0) and join(tenant)
end

local function leave(tenant)
  if known[tenant] == false then return end
  local waits = false
  if heads.aside > 0 then
    local turn = turns.turn(tenant)
    if not turn then return end
    waits = aside.waits(tenant)
    if waits then turns.keep(tenant, turn) end
  end
  known[tenant] = false
  zdrop(TENANTS, tenant)
  if not waits and not without_credit[tenant] then hput(key('credit'), tenant, false) end
end

-- Closes a line that has no jobs, or whose queue has no room.
function turns.close(line)
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
  if left > 0 then return end
  leave(tenant)
  if heads.tiers > 0 and has_settings(tenant) then relook.release(tenant) end
end

-- Wakes the workers that sleep on lines of a tenant that have jobs.
function turns.wake(tenant)
  local resting, open = key('resting:' .. tenant), lines.open_key(tenant)
  zflush(open)
  if call('ZCARD', open) + call('SCARD', resting) > WAKE_MAX then
    base.wake_all()
    return
  end
  for _, queue in ipairs(call('ZRANGE', open, 0, -1)) do base.wake(tenant .. '\0' .. queue) end
  for _, queue in ipairs(call('SMEMBERS', resting)) do base.wake(tenant .. '\0' .. queue) end
end

-- Lets a tenant take turns or not, as its room is now. `quiet`: nobody is woken.
function turns.refresh(tenant, quiet)
  local name = lines.open_key(tenant)
  zflush(name)
  if call('EXISTS', name) == 0 then return end
  if limits.tenant_room(tenant) > 0 then
    if not turns.turn(tenant) then
      join(tenant)
      if not quiet then turns.wake(tenant) end
    end
  else
    leave(tenant)
    limits.recheck_later('t', tenant, '', limits.of('t', tenant, ''))
  end
end
