-- Repair: what a claim does first. Due jobs and lapsed leases become ready, and what time has opened
-- goes on: REPAIR_MAX of each at a time.

local REPAIR_MAX, REPAIR_PASSES_MAX = 200, 10
local REOPEN = key('reopen')

local UNTIL = whole(NOW)

local function past(name, most)
  zsettle(name)
  return call('ZRANGEBYSCORE', name, '-inf', UNTIL, 'LIMIT', '0', most)
end

-- Gives `act` the rows whose instant has passed; a place without a row is dropped. Returns how many.
local function each_past(name, most, act)
  local seqs = packs.spread(past(name, most), most)
  if #seqs == 0 then return 0 end
  rows.load(seqs)
  for _, seq in ipairs(seqs) do
    local row = rows.get(seq)
    if row then act(row) else zdrop(name, seq) end
  end
  return #seqs
end

function repair.promote(most)
  return each_past(DUE, most, function(row)
    jobs.leave(row)
    row.state = ENQUEUED
    jobs.enter(row)
  end)
end

local function rescue()
  return each_past(HELD, REPAIR_MAX, function(row)
    jobs.leave(row)
    row.state, row.lapses, row.updated = ENQUEUED, row.lapses + 1, NOW
    jobs.enter(row)
    log.note('rescued', row)
  end)
end

local function reopen()
  local scopes = past(REOPEN, REPAIR_MAX)
  for _, scope in ipairs(scopes) do
    zdrop(REOPEN, scope)
    gates.look(scope)
    local first = call('ZRANGE', key('slots:' .. scope), 0, 0, 'WITHSCORES')
    if first[2] then gates.reopen_at(tonumber(first[2]), scope) end
  end
  return #scopes
end

-- Last, for the jobs made ready just now may have outlived their time too.
local function retire() return each_past(TTL, REPAIR_MAX, jobs.retire) end

function repair.once()
  return repair.promote(REPAIR_MAX) + rescue() + reopen() + retire()
end

-- Brings all up to this instant, within bounds. Nothing is written when nothing has come due.
function repair.all()
  local moved = false
  for _ = 1, REPAIR_PASSES_MAX do
    local count = repair.once()
    moved = moved or count > 0
    if count < REPAIR_MAX then break end
  end
  if moved then
    groups.open_up()
    lines.open_up()
  end
  return moved
end
