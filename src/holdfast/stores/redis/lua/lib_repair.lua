-- Repair: what a claim does first. Due jobs and jobs with expired leases become ready, and scopes
-- in which time has made room are checked: REPAIR_MAX of each at a time.

local HELD, DUE, REOPEN = key('held'), key('due'), key('reopen')
local UNTIL = whole(NOW)

local function past(name)
  zflush(name)
  return call('ZRANGEBYSCORE', name, '-inf', UNTIL, 'LIMIT', '0', REPAIR_MAX)
end

-- Calls `act` with the rows whose instant has passed; an entry without a row is dropped. Returns
-- how many there were.
local function each_past(name, act)
  local seqs = past(name)
  if #seqs == 0 then return 0 end
  rows.load(seqs)
  for _, seq in ipairs(seqs) do
    local row = rows.get(seq)
    if row then act(row) else zdrop(name, seq) end
  end
  return #seqs
end

local function promote(row)
  index.remove(row)
  row.state = ENQUEUED
  index.add(row)
end

local function rescue(row)
  index.remove(row)
  row.state, row.lapses, row.updated = ENQUEUED, row.lapses + 1, NOW
  index.add(row)
  events.note('rescued', row)
end

local function recheck_scopes()
  local scopes = past(REOPEN)
  for _, scope in ipairs(scopes) do
    zdrop(REOPEN, scope)
    limits.recheck(scope)
    local first = call('ZRANGE', key('slots:' .. scope), 0, 0, 'WITHSCORES')
    if first[2] then limits.recheck_at(tonumber(first[2]), scope) end
  end
  return #scopes
end

local TTL = key('ttl')

-- Jobs past their time to live come last: some may have become ready just now.
local function once()
  if call('EXISTS', DUE, REOPEN, TTL) == 0 then return each_past(HELD, rescue) end
  return each_past(DUE, promote) + each_past(HELD, rescue) + recheck_scopes()
    + each_past(TTL, index.expire)
end

-- Repairs everything up to now, within bounds. Writes nothing if nothing is due.
function repair.all()
  local moved = heads.releasing > 0 and joins.release_left()
  for _ = 1, REPAIR_PASSES_MAX do
    local count = once()
    moved = moved or count > 0
    if count < REPAIR_MAX then break end
  end
  if not moved then return end
  groups.refresh_all()
  lines.refresh_all()
end
