-- Leasing: which jobs a claim leases, tenant by tenant and line by line.
--
-- A claim is {worker, nonces, limit, lease_us, tenants or nil, queues or nil, excluded groups or
-- nil}. The last nonce is that of the new leases; over several shards the others are those of its
-- earlier rounds (see claim.py).

local PASSED_MAX = 10000 -- Jobs of excluded groups that one claim passes over.
local VISITS_MAX = 2000 -- Lines in which one turn finds nothing.
local TOGETHER_MAX = 8 -- Lines whose jobs are taken together: as many as fit in any turn.
local BACK_MAX = 1000 -- Jobs that one claim puts back because their groups have no room.

leasing.leased = {} -- The rows, in the order in which they were leased.
local back_left = BACK_MAX

function leasing.read(list)
  local nonces = list[2]
  return {
    worker = list[1], nonces = nonces, nonce = nonces[#nonces], limit = list[3], lease_us = list[4],
    tenants = list[5], queues = list[6], excluded = set_of(list[7]),
  }
end

-- -- one line -------------------------------------------------------------------------------------

local function lease(row, claim, turn)
  if turn then shares.start(turn, row) end
  if has_settings(row.tenant) then limits.take_tokens(row) end
  row.left = ENQUEUED
  if row.group then groups.forget(row) end
  if row.flags > 0 then
    index.forget_age(row)
    values.keep(row, PROGRESS, nil)
    values.keep(row, AWAITS, nil)
  end
  if row.expires > 0 then zdrop(key('ttl'), row.seq) end
  row.state, row.attempt, row.fence = PROCESSING, row.attempt + 1, row.fence + 1
  row.nonce, row.worker = claim.nonce, claim.worker
  row.lease, row.updated = NOW + claim.lease_us, NOW
  index.add(row)
  events.note('leased', row, row.lease, claim.worker)
  leasing.leased[#leasing.leased + 1] = row
end

-- Leases a job that was taken out of its line, if it may start now. Returns 'leased', 'passed' (its
-- group is excluded), 'back' (it is past its time to live, or its group has no room), 'stop' (too
-- many were put back), or what its type says (`shares.stop`).
local function try(row, claim, turn)
  if row.expires > 0 and row.expires <= NOW then
    index.expire(row)
    return 'back'
  end
  local group = row.group
  if group and claim.excluded and claim.excluded[group] then return 'passed' end
  local stop = turn and shares.stop(turn, row)
  if stop then return stop end
  if group and limits.limits_group(row.tenant, group, row.queue)
    and limits.group_room(row.tenant, group, row.queue) <= 0
  then
    -- A tier may limit groups of which thousands of jobs are in the line: the next claim goes on.
    if back_left == 0 then return 'stop' end
    back_left = back_left - 1
    groups.wait_again(row)
    return 'back'
  end
  lease(row, claim, turn)
  return 'leased'
end

-- Leases jobs of a list in its order, up to `wanted`; those of excluded groups are added to
-- `passed`. Returns how many it leased, how many it set aside, the place at which it stopped,
-- whether the line may have got jobs, and whether the line goes on later.
local function take_list(list, claim, wanted, turn, passed)
  local got, waiting, back = 0, 0, false
  for at, row in ipairs(list) do
    if got == wanted then return got, waiting, at, back, false end
    local done = try(row, claim, turn)
    if done == 'stop' then return got, waiting, at, back, true end
    if done == 'leased' then got = got + 1 end
    if done == 'passed' then passed[#passed + 1] = row end
    if done == 'waits' then waiting = waiting + 1 end
    back = back or done == 'back'
    if done == 'waits' and row.group then
      return got, waiting, at + 1, true, false -- Another of its group may come before the rest.
    end
  end
  return got, waiting, #list + 1, back, false
end

-- How many jobs to take out of a line next. Many may wait for their type or group: then more and
-- more.
local function next_size(size, wanted, waiting, is_whole)
  if waiting == 0 then return wanted end
  return is_whole and math.min(2 * size, ASIDE_MAX) or 1
end

-- Takes the first jobs out of a line; returns their sequences.
local function pop(line, size)
  zflush(line.key)
  local popped, seqs = call('ZPOPMIN', line.key, size), {}
  for at = 1, #popped, 2 do seqs[#seqs + 1] = popped[at] end
  return seqs
end

-- Takes the first jobs out of lines that are visited next: few commands serve all of them. Only for
-- a tenant without limits, since what the visit of one line starts may let jobs into another.
local function pop_together(tenant, queues, share, twice)
  local all, longer, names = {}, {}, {}
  for at, queue in ipairs(queues) do
    local line, size = lines.of(tenant, queue), share + (at <= twice and 1 or 0)
    line.popped = pop(line, size)
    for _, seq in ipairs(line.popped) do all[#all + 1] = seq end
    if #line.popped == size then longer[#longer + 1], names[#names + 1] = line, line.key end
  end
  rows.load(all)
  if #names < 2 or call('EXISTS', unpack(names)) < #names then return end
  for _, line in ipairs(longer) do line.goes_on = true end
end

-- Leases up to `wanted` jobs of a line. Returns how many, and whether the line is empty.
local function take_line(line, claim, wanted, turn)
  local got, passed, size, is_empty, stopped = 0, {}, wanted, false, false
  local goes_on = line.goes_on -- Whether it has jobs behind those that were taken out.
  line.goes_on = false
  while got < wanted and #passed < PASSED_MAX and not is_empty and not stopped do
    if turn and heads.aside > 0 then resume.for_line(line, size) end
    local seqs = line.popped
    if not seqs then seqs, goes_on = pop(line, size), false end
    line.popped = false
    local list = rows.list(seqs) -- An entry without a row is dropped.
    local taken, waiting, rest, back, stop = take_list(list, claim, wanted - got, turn, passed)
    got, stopped = got + taken, stop
    for at = rest, #list do zput(line.key, list[at].seq, -list[at].priority) end
    if back then groups.refresh_all() end
    is_empty = #seqs < size and rest > #list and not back
    size = next_size(size, wanted - got, waiting + (back and 1 or 0), rest > #list)
  end
  for _, row in ipairs(passed) do zput(line.key, row.seq, -row.priority) end
  if #passed > 0 then return got, false end
  if goes_on then return got, false end
  zflush(line.key)
  return got, is_empty or call('EXISTS', line.key) == 0
end

-- -- one tenant -----------------------------------------------------------------------------------

-- Leases up to `wanted` jobs of a tenant, from its lines in turn. Returns how many, and the queues
-- that were visited and are still open.
local function take_lines(tenant, claim, wanted, turn)
  local got, visited, dry, dried, all_seen = 0, {}, {}, 0, false
  while got < wanted and dried < VISITS_MAX and not all_seen do
    local found, most = {}, wanted - got + dried
    local open = fairness.lines(tenant, claim.queues, most)
    for _, queue in ipairs(open) do
      if not dry[queue] then found[#found + 1] = queue end
    end
    if #found == 0 then break end
    local share = fairness.line_share(wanted - got, #found)
    -- The first lines have one more, as if they were visited twice.
    local twice = math.max(0, wanted - got - share * #found)
    local fits = #found <= TOGETHER_MAX and share * #found <= wanted - got -- All are visited.
    if fits and not turn and not has_settings(tenant) then
      pop_together(tenant, found, share, twice)
    end
    for at, queue in ipairs(found) do
      if got == wanted then break end
      local line, most = lines.of(tenant, queue), share + (at <= twice and 1 or 0)
      most = math.min(most, wanted - got)
      local taken, is_empty, is_aside, asked = 0, false, false, most
      if turn then
        asked, is_aside = shares.line_room(turn, line)
        asked = math.min(most, asked)
      end
      if has_settings(tenant) then asked = math.min(asked, limits.line_room(tenant, queue)) end
      if asked > 0 then taken, is_empty = take_line(line, claim, asked, turn) end
      got = got + taken
      if taken < most then
        dry[queue] = true
        dried = dried + 1
      end
      fairness.end_visit(line, is_empty or is_aside)
      visited[queue] = not (is_empty or is_aside) or nil
    end
    all_seen = #open < most and dried >= #open
  end
  return got, visited
end

-- The same of what a claim over several shards meant for the tenant, line by line. A line may have
-- been closed since.
local function take_meant(tenant, claim, wanted, turn)
  local got, visited, most_of, names = 0, {}, {}, {}
  for at = 1, #turn.queues, 2 do
    names[#names + 1] = turn.queues[at]
    most_of[turn.queues[at]] = turn.queues[at + 1]
  end
  for _, queue in ipairs(fairness.first_members(lines.open_key(tenant), names, #names)) do
    local most = math.min(most_of[queue], wanted - got)
    local line, taken, is_empty = lines.of(tenant, queue), 0, false
    local room, is_aside = shares.line_room(turn, line)
    room = math.min(room, most)
    if has_settings(tenant) then room = math.min(room, limits.line_room(tenant, queue)) end
    if room > 0 then taken, is_empty = take_line(line, claim, room, turn) end
    got = got + taken
    fairness.end_visit(line, is_empty or is_aside)
    visited[queue] = not (is_empty or is_aside) or nil
  end
  return got, visited
end

-- What a turn keeps for later: all that it lacks if the claim is full; no more than its weight if a
-- limit of the platform stopped it.
local function owed(turn, got, allowed, room)
  if got == room then return math.max(0, allowed - got) end
  if not turn or not shares.stopped(turn) then return 0 end
  return math.max(0, math.min(allowed, turn.weight) - got)
end

-- Gives a tenant its turn: `allowed` jobs, of which the claim has room for `room`; `turn` is its
-- share of the platform's room, nil without limits of the platform. Returns how many it took, and
-- whether it has no more.
function leasing.turn(tenant, claim, allowed, room, turn)
  local wanted = math.min(allowed, room)
  local take = turn and turn.queues and take_meant or take_lines
  local got, visited = take(tenant, claim, wanted, turn)
  fairness.end_turn(tenant, owed(turn, got, allowed, room), visited)
  return got, got < wanted and not (turn and shares.has_more(turn))
end

-- Ends a claim. Returns its leases as values.answers does.
function leasing.answer(claim, known)
  if not known then repeats.remember(claim, leasing.leased) end
  base.finish()
  return values.answers(leasing.leased, 1)
end
