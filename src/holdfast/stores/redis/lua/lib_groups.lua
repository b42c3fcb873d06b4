-- Groups: jobs wait here, before ready, until their group has a place for them.
--
--   wait:<tenant, group, queue>     its waiting jobs, by rank
--   granted:<tenant, group, queue>  those that stand in their line
--   parts:<tenant, group>           the queues it has such jobs in
--   order:<tenant, group>           all its jobs that have not ended, by sequence
--
-- Only while something gates the group: else its jobs stand in their lines like any other.

local touched = {}

local function part_name(tenant, group, queue) return tenant .. '\0' .. group .. '\0' .. queue end
local function wait_key(part) return key('wait:' .. part) end
local function granted_key(part) return key('granted:' .. part) end
local function parts_key(tenant, group) return key('parts:' .. tenant .. '\0' .. group) end
local function order_key(tenant, group) return key('order:' .. tenant .. '\0' .. group) end

function groups.touch(tenant, group) touched[tenant .. '\0' .. group] = {tenant, group} end

function groups.joins(row) zput(order_key(row.tenant, row.group), row.seq, row.seq) end
function groups.leaves(row) zdrop(order_key(row.tenant, row.group), row.seq) end

-- The sequence of the group's first job that has not ended.
function groups.head(tenant, group)
  local name = order_key(tenant, group)
  while true do
    zsettle(name)
    local seq = call('ZRANGE', name, 0, 0)[1]
    if not seq or rows.get(seq) then return seq end
    zdrop(name, seq)
  end
end

-- Lets a job wait for a place.
function groups.line_up(row)
  local gate = gates.group(row.tenant, row.group, row.queue)
  local part = part_name(row.tenant, row.group, row.queue)
  mark(row, GATED)
  unmark(row, GRANTED)
  row.dirty = true
  zput(wait_key(part), row.seq, gate.ordered and 0 or -row.priority)
  call('SADD', parts_key(row.tenant, row.group), row.queue)
  groups.touch(row.tenant, row.group)
end

-- Takes a job out of where it waits, or out of those that have a place in the line.
function groups.forget(row)
  local part = part_name(row.tenant, row.group, row.queue)
  if has(row, GATED) then zdrop(wait_key(part), row.seq) end
  if has(row, GRANTED) then zdrop(granted_key(part), row.seq) end
  if has(row, GATED) or has(row, GRANTED) then groups.touch(row.tenant, row.group) end
  unmark(row, GATED)
  unmark(row, GRANTED)
  row.dirty = true
end

-- Puts a granted job back: its group has no place for it after all.
function groups.wait_again(row)
  local part = part_name(row.tenant, row.group, row.queue)
  if has(row, GRANTED) then zdrop(granted_key(part), row.seq) end
  groups.line_up(row)
  gates.reopen_later('g', row.tenant, row.group, gates.group(row.tenant, row.group, row.queue))
end

local function grant(row, part)
  zdrop(wait_key(part), row.seq)
  zput(granted_key(part), row.seq, -row.priority)
  unmark(row, GATED)
  mark(row, GRANTED)
  row.dirty = true
  lines.push(row)
end

local function comes_before(score, seq, other_score, other_seq)
  return score < other_score or (score == other_score and seq < other_seq)
end

-- The jobs that wait in a part, the first first, as many as could be granted.
local function waiting(part, most)
  zsettle(wait_key(part))
  local found = call('ZRANGE', wait_key(part), 0, math.min(most, 1000) - 1)
  rows.load(found)
  for _, seq in ipairs(found) do
    if not rows.get(seq) then zdrop(wait_key(part), seq) end
  end
  return rows.list(found)
end

local function grant_ordered(tenant, group, part, room)
  local head = groups.head(tenant, group)
  zsettle(wait_key(part))
  if room > 0 and head and call('ZSCORE', wait_key(part), head) then grant(rows.get(head), part) end
end

-- Fills the room of a part; and lets in what comes before a job that stands in the line already:
-- the claim will see that together they do not exceed it.
local function grant_first(part, room)
  repeat
    zsettle(granted_key(part))
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

-- Lets as many of a group's jobs in a queue into their line as it has room for, the first first.
function groups.grant(tenant, group, queue)
  local part, gate = part_name(tenant, group, queue), gates.group(tenant, group, queue)
  local room = gates.group_room(tenant, group, queue)
  if room > 0 then
    if gate.ordered then
      grant_ordered(tenant, group, part, room)
    else
      grant_first(part, room)
    end
  end
  zsettle(wait_key(part))
  if call('EXISTS', wait_key(part)) == 1 then
    gates.reopen_later('g', tenant, group, gate)
  else
    zsettle(granted_key(part))
    if call('EXISTS', granted_key(part)) == 0 then
      call('SREM', parts_key(tenant, group), queue)
    end
  end
end

function groups.open_up()
  while next(touched) do
    local all = touched
    touched = {}
    for _, names in pairs(all) do
      local tenant, group = names[1], names[2]
      for _, queue in ipairs(call('SMEMBERS', parts_key(tenant, group))) do
        groups.grant(tenant, group, queue)
      end
    end
  end
end

-- Sorts a group anew after its rules have changed.
function groups.regrant(tenant, group)
  local name, after = order_key(tenant, group), '-inf'
  zsettle(name)
  for _, queue in ipairs(call('SMEMBERS', parts_key(tenant, group))) do
    local part = part_name(tenant, group, queue)
    zsettle(wait_key(part))
    zsettle(granted_key(part))
    call('DEL', wait_key(part), granted_key(part))
  end
  repeat
    local seqs = call('ZRANGEBYSCORE', name, after, '+inf', 'LIMIT', 0, 1000)
    rows.load(seqs)
    for _, seq in ipairs(seqs) do
      local row = rows.get(seq)
      if row and row.state == ENQUEUED and not has(row, LATE) then jobs.line_up_anew(row) end
      after = '(' .. seq
    end
  until #seqs == 0
  groups.touch(tenant, group)
end

-- Sorts the groups of a queue anew after what it sets for them has changed.
function groups.regrant_queue(tenant, queue)
  local found = call('ZRANGEBYLEX', key('scopes:g'), '[' .. tenant .. '\0', '(' .. tenant .. '\1')
  for _, part in ipairs(found) do
    local group = string.sub(part, #tenant + 2)
    gates.bound(counts.name('g', tenant, group), gates.group(tenant, group, queue).rate)
    groups.regrant(tenant, group)
  end
end
