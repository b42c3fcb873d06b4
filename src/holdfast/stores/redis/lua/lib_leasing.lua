-- Leasing: which jobs a claim leases, tenant by tenant and line by line.
--
-- A claim is {worker, nonces, limit, lease_us, tenants or nil, queues or nil, excluded groups or
-- nil}. The last nonce is that of the new leases; over several shards the others are those of its
-- earlier rounds (see claim.py).

local ASIDE_MAX = 10000 -- Jobs of excluded groups that one claim passes over.
local VISITS_MAX = 2000 -- Lines in which one turn finds nothing.
local SEQ_SIZE = 16
local REPEAT_US = CLAIM_REPEAT_US

leasing.leased = {} -- The rows, in the order in which they were leased.

function leasing.read(list)
  local nonces = list[2]
  return {
    worker = list[1], nonces = nonces, nonce = nonces[#nonces], limit = list[3], lease_us = list[4],
    tenants = list[5], queues = list[6], excluded = set_of(list[7]),
  }
end

-- -- one line -------------------------------------------------------------------------------------

local function lease(row, claim)
  if has_settings(row.tenant) then limits.take_tokens(row) end
  row.left = ENQUEUED
  if row.group then groups.forget(row) end
  if row.flags > 0 then
    index.forget_age(row)
    values.keep(row, PROGRESS, nil)
  end
  if row.expires > 0 then zdrop(key('ttl'), row.seq) end
  row.state, row.attempt, row.fence = PROCESSING, row.attempt + 1, row.fence + 1
  row.nonce, row.worker = claim.nonce, claim.worker
  row.lease, row.updated = NOW + claim.lease_us, NOW
  index.add(row)
  events.note('leased', row, row.lease, claim.worker)
  leasing.leased[#leasing.leased + 1] = row
end

-- Leases a job that was taken out of its line, if it may start now. Returns 'leased', 'aside' (its
-- group is excluded) or 'back' (it is past its time to live, or its group has no room).
local function try(row, claim)
  if row.expires > 0 and row.expires <= NOW then
    index.expire(row)
    return 'back'
  end
  local group = row.group
  if group and claim.excluded and claim.excluded[group] then return 'aside' end
  if group and limits.limits_group(row.tenant, group, row.queue)
    and limits.group_room(row.tenant, group, row.queue) <= 0
  then
    groups.wait_again(row)
    return 'back'
  end
  lease(row, claim)
  return 'leased'
end

-- Leases up to `wanted` jobs of a line. Returns how many, and whether the line is empty.
local function take_line(line, claim, wanted)
  local got, aside, is_empty = 0, {}, false
  while got < wanted and #aside < ASIDE_MAX and not is_empty do
    zflush(line.key)
    local popped, seqs, back = call('ZPOPMIN', line.key, wanted - got), {}, false
    for at = 1, #popped, 2 do seqs[#seqs + 1] = popped[at] end
    is_empty = #seqs < wanted - got
    rows.load(seqs)
    for _, seq in ipairs(seqs) do
      local row = rows.get(seq) -- An entry without a row is dropped.
      local done = row and try(row, claim)
      if done == 'leased' then got = got + 1 end
      if done == 'aside' then aside[#aside + 1] = row end
      back = back or done == 'back'
    end
    if back then
      groups.refresh_all()
      is_empty = false
    end
  end
  for _, row in ipairs(aside) do zput(line.key, row.seq, -row.priority) end
  if #aside > 0 then return got, false end
  return got, is_empty or call('EXISTS', line.key) == 0
end

-- -- one tenant -----------------------------------------------------------------------------------

-- Leases up to `wanted` jobs of a tenant, from its lines in turn. Returns how many, and the queues
-- that were visited and are still open.
local function take_lines(tenant, claim, wanted)
  local got, visited, dry, dried, all_seen = 0, {}, {}, 0, false
  while got < wanted and dried < VISITS_MAX and not all_seen do
    local found, most = {}, wanted - got + dried
    local open = fairness.lines(tenant, claim.queues, most)
    for _, queue in ipairs(open) do
      if not dry[queue] then found[#found + 1] = queue end
    end
    if #found == 0 then break end
    local share = fairness.rounds(wanted - got, #found, #found)
    for _, queue in ipairs(found) do
      if got == wanted then break end
      local line, most = lines.of(tenant, queue), math.min(share, wanted - got)
      local taken, is_empty = 0, false
      local asked = has_settings(tenant) and math.min(most, limits.line_room(tenant, queue)) or most
      if asked > 0 then taken, is_empty = take_line(line, claim, asked) end
      got = got + taken
      if taken < most then
        dry[queue] = true
        dried = dried + 1
      end
      fairness.end_visit(line, is_empty)
      visited[queue] = not is_empty or nil
    end
    all_seen = #open < most and dried >= #open
  end
  return got, visited
end

-- Gives a tenant its turn: `allowed` jobs, of which the claim has room for `room`. Returns how many
-- it took, and whether it has no more.
function leasing.turn(tenant, claim, allowed, room)
  local wanted = math.min(allowed, room)
  local got, visited = take_lines(tenant, claim, wanted)
  local cut_short = got == room and got < allowed
  fairness.end_turn(tenant, cut_short and allowed - got or 0, visited)
  return got, got < wanted
end

-- -- repeats --------------------------------------------------------------------------------------
-- A claim that gave leases is stored under its nonce for a while: until when, and the sequences of
-- its jobs. Repeated, it gives those of its leases that are still valid, and no others.

local function remember(claim)
  if #leasing.leased == 0 then return end
  local seqs = {wide(NOW + REPEAT_US)}
  for at, row in ipairs(leasing.leased) do seqs[at + 1] = row.seq end
  call('SET', key('claim:' .. claim.nonce), table.concat(seqs), 'PX', whole(REPEAT_US / 1000))
end

-- Whether a claim asks for jobs like this: a caller with the nonce of another gets none of its
-- leases.
local function asks_for(claim, row)
  if not claim.of_tenants then
    claim.of_tenants, claim.of_queues = set_of(claim.tenants) or {}, set_of(claim.queues) or {}
  end
  return (not claim.tenants or claim.of_tenants[row.tenant])
    and (not claim.queues or claim.of_queues[row.queue])
end

-- Whether this claim was made before. If so, its valid leases are in `leasing.leased`.
function leasing.repeated(claim)
  local known = false
  for _, nonce in ipairs(claim.nonces) do
    local text = call('GET', key('claim:' .. nonce))
    if text and tonumber(string.sub(text, 1, SEQ_SIZE)) > NOW then
      known = true
      local seqs = {}
      for at = SEQ_SIZE + 1, #text, SEQ_SIZE do
        seqs[#seqs + 1] = string.sub(text, at, at + SEQ_SIZE - 1)
      end
      for _, row in ipairs(rows.list(seqs)) do
        if row.state == PROCESSING and row.lease > NOW and row.nonce == nonce
          and asks_for(claim, row)
        then
          leasing.leased[#leasing.leased + 1] = row
        end
      end
    end
  end
  return known
end

-- Ends a claim. Returns its leases as values.answers does.
function leasing.answer(claim, known)
  if not known then remember(claim) end
  base.finish()
  return values.answers(leasing.leased)
end
