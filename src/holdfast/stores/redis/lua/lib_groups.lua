-- Limited groups: their jobs wait in the group and enter their line when the group has room.
--
--   wait:<tenant, group, queue>     its waiting jobs, by priority or, if it is ordered, by sequence
--   granted:<tenant, group, queue>  its jobs that are in their line
--   parts:<tenant, group>           the queues in which it has such jobs
--   order:<tenant, group>           all its jobs that have not ended, by sequence
--
-- Jobs of a group without limit, rate, pause or order are in their line like any other.

local has, mark, unmark = rows.has, rows.mark, rows.unmark
local GRANTED_MAX = 1000 -- Jobs of a group and queue that are in their line: what one claim takes.

local touched, granted = {}, 0

-- How many jobs entered their lines in this call.
function groups.granted() return granted end

local function part_name(tenant, group, queue) return tenant .. '\0' .. group .. '\0' .. queue end
local function wait_key(part) return key('wait:' .. part) end
local function granted_key(part) return key('granted:' .. part) end
local function parts_key(tenant, group) return key('parts:' .. tenant .. '\0' .. group) end
local function order_key(tenant, group) return key('order:' .. tenant .. '\0' .. group) end

function groups.touch(tenant, group) touched[tenant .. '\0' .. group] = {tenant, group} end

function groups.join(row) zput(order_key(row.tenant, row.group), row.seq, row.seq) end
function groups.leave(row) zdrop(order_key(row.tenant, row.group), row.seq) end

-- The sequence of the group's first job that has not ended.
function groups.head(tenant, group)
  local name = order_key(tenant, group)
  while true do
    zflush(name)
    local seq = call('ZRANGE', name, 0, 0)[1]
    if not seq or rows.get(seq) then return seq end
    zdrop(name, seq)
  end
end

-- Puts a job among those that wait for room.
function groups.wait(row)
  local limit = limits.group(row.tenant, row.group, row.queue)
  local part = part_name(row.tenant, row.group, row.queue)
  mark(row, WAITS)
  unmark(row, GRANTED)
  row.dirty = true
  zput(wait_key(part), row.seq, limit.ordered and 0 or -row.priority)
  call('SADD', parts_key(row.tenant, row.group), row.queue)
  groups.touch(row.tenant, row.group)
end

-- Removes a job from those that wait, or from those that are in their line.
function groups.forget(row)
  local part = part_name(row.tenant, row.group, row.queue)
  if has(row, WAITS) then zdrop(wait_key(part), row.seq) end
  if has(row, GRANTED) then zdrop(granted_key(part), row.seq) end
  if has(row, WAITS) or has(row, GRANTED) then groups.touch(row.tenant, row.group) end
  unmark(row, WAITS)
  unmark(row, GRANTED)
  row.dirty = true
end

-- Puts a job of a line back among those that wait: its group has no room.
function groups.wait_again(row)
  local part = part_name(row.tenant, row.group, row.queue)
  if has(row, GRANTED) then zdrop(granted_key(part), row.seq) end
  groups.wait(row)
  limits.recheck_later('g', row.tenant, row.group, limits.group(row.tenant, row.group, row.queue))
end

local function grant(row, part)
  zdrop(wait_key(part), row.seq)
  zput(granted_key(part), row.seq, -row.priority)
  unmark(row, WAITS)
  mark(row, GRANTED)
  row.dirty = true
  granted = granted + 1
  lines.push(row)
end

local function comes_before(score, seq, other_score, other_seq)
  return score < other_score or (score == other_score and seq < other_seq)
end

-- The first jobs that wait in a queue of a group.
local function waiting(part, most)
  zflush(wait_key(part))
  local found = call('ZRANGE', wait_key(part), 0, math.min(most, 1000) - 1)
  rows.load(found)
  for _, seq in ipairs(found) do
    if not rows.get(seq) then zdrop(wait_key(part), seq) end
  end
  return rows.list(found)
end

local function grant_ordered(tenant, group, part, room)
  local head = groups.head(tenant, group)
  zflush(wait_key(part))
  if room > 0 and head and call('ZSCORE', wait_key(part), head) then grant(rows.get(head), part) end
end

-- Fills the room of a group in a queue. A job that comes before one that is already in the line
-- enters too: the claim checks the room again and takes only as many as there is room for.
local function grant_first(part, room)
  repeat
    zflush(granted_key(part))
    local held = call('ZCARD', granted_key(part))
    local last = call('ZREVRANGE', granted_key(part), 0, 0, 'WITHSCORES')
    local found = waiting(part, room)
    local worst_score, worst_seq = tonumber(last[2]), last[1]
    local moved = 0
    for _, row in ipairs(found) do
      local seq = row.seq
      local before = worst_seq and comes_before(-row.priority, seq, worst_score, worst_seq)
      if held >= room and not before then return end
      grant(row, part)
      held, moved = held + 1, moved + 1
      if not worst_seq or not before then worst_score, worst_seq = -row.priority, seq end
    end
  until moved == 0
end

-- Moves as many of a group's jobs in a queue into their line as it has room for, in order. Returns
-- whether others wait.
function groups.grant(tenant, group, queue)
  local part, limit = part_name(tenant, group, queue), limits.group(tenant, group, queue)
  local room = math.min(limits.group_room(tenant, group, queue), GRANTED_MAX)
  if room > 0 then
    if limit.ordered then
      grant_ordered(tenant, group, part, room)
    else
      grant_first(part, room)
    end
  end
  zflush(wait_key(part))
  if call('EXISTS', wait_key(part)) == 1 then
    limits.recheck_later('g', tenant, group, limit)
    return true
  end
  zflush(granted_key(part))
  if call('EXISTS', granted_key(part)) == 0 then call('SREM', parts_key(tenant, group), queue) end
  return false
end

local function refresh(tenant, group)
  local queues, waits = call('SMEMBERS', parts_key(tenant, group)), false
  for _, queue in ipairs(queues) do waits = groups.grant(tenant, group, queue) or waits end
  if heads.tiers > 0 and #queues > 0 and not waits then relook.drop('g', tenant, group) end
end

function groups.refresh_all()
  while next(touched) do
    local all = touched
    touched = {}
    for _, names in pairs(all) do refresh(names[1], names[2]) end
  end
end

-- Places all enqueued jobs of a group again, after its settings changed.
function groups.reset(tenant, group)
  local name, after = order_key(tenant, group), '-inf'
  zflush(name)
  for _, queue in ipairs(call('SMEMBERS', parts_key(tenant, group))) do
    local part = part_name(tenant, group, queue)
    zflush(wait_key(part))
    zflush(granted_key(part))
    call('DEL', wait_key(part), granted_key(part))
  end
  repeat
    local seqs = call('ZRANGEBYSCORE', name, after, '+inf', 'LIMIT', 0, 1000)
    rows.load(seqs)
    for _, seq in ipairs(seqs) do
      local row = rows.get(seq)
      if row and row.state == ENQUEUED and not has(row, LATE) then index.requeue(row) end
      after = '(' .. seq
    end
  until #seqs == 0
  groups.touch(tenant, group)
end

-- The same for all groups of a tenant, after the defaults of a queue for its groups changed.
function groups.reset_queue(tenant, queue)
  local found = call('ZRANGEBYLEX', key('scopes:g'), '[' .. tenant .. '\0', '(' .. tenant .. '\1')
  for _, part in ipairs(found) do
    local group = string.sub(part, #tenant + 2)
    limits.cap_bucket(counts.name('g', tenant, group), limits.group(tenant, group, queue).rate)
    groups.reset(tenant, group)
  end
end
