-- Take: which jobs a claim leases, line by line.
--
-- A claim is {worker, nonce, limit, lease_us, tenants or nil, queues or nil, excluded groups or nil}.

local ASIDE_MAX = 10000 -- Jobs of excluded groups that one claim looks past.

-- Tells of a job, or of a piece of a pack, which is leased; `body` if that is known.
function take.tell(seq, text, body)
  local told = take.told + 1
  take.told, take.seqs[told], take.texts[told], take.bodies[told] = told, seq, text, body or false
end

function take.add(row)
  take.count = take.count + 1
  take.tell(row.seq, false, row.body)
  take.rows[take.told] = row
end

local function lease(row, claim)
  gates.spend(row)
  row.left = ENQUEUED
  if row.group then groups.forget(row) end
  if has(row, AGED) then
    unmark(row, AGED)
    zdrop(key('ages:' .. row.tenant .. '\0' .. row.queue), row.seq)
  end
  if row.expires > 0 then zdrop(TTL, row.seq) end
  row.state, row.attempt, row.fence = PROCESSING, row.attempt + 1, row.fence + 1
  row.nonce, row.worker = claim.nonce, claim.worker
  row.lease, row.updated = NOW + claim.lease_us, NOW
  if has(row, PROGRESS) then rows.keep(row, PROGRESS, nil) end
  jobs.enter(row)
  log.note('leased', row, row.lease, claim.worker)
  take.add(row)
end

local function may_start(row)
  if not gates.gated(row.tenant, row.group, row.queue) then return true end
  if gates.group_room(row.tenant, row.group, row.queue) > 0 then return true end
  groups.wait_again(row)
  return false
end

-- Leases a job, if it may start now. Returns 'leased', 'aside' (its group is excluded) or 'back'.
local function try(row, claim)
  if row.expires > 0 and row.expires <= NOW then
    jobs.retire(row)
    return 'back'
  end
  if row.group and claim.excluded and claim.excluded[row.group] then return 'aside' end
  if not may_start(row) then return 'back' end
  lease(row, claim)
  return 'leased'
end

-- The same of jobs of a pack. Where more is to be asked of each, they get rows and come again.
local function take_pack(member, claim, wanted, easy)
  if not easy then
    local pack = packs.of(member)
    if pack then packs.open(pack) end
    return 0
  end
  local got = pieces.take(member, claim, wanted)
  take.count = take.count + got
  return got
end

-- Leases up to so many jobs of a line; returns how many.
local function take_line(tenant, queue, claim, wanted)
  local got, aside, easy = 0, {}, not ruled(tenant)
  while got < wanted and #aside < ASIDE_MAX do
    local seqs, pack, again = lines.pop(tenant, queue, wanted - got)
    if pack then
      got = got + take_pack(pack, claim, wanted - got, easy)
    elseif #seqs == 0 then
      break
    end
    local texts = core.values(ROWS, seqs)
    for index, seq in ipairs(seqs) do
      local new = easy and texts[index] and not rows.known(seq)
        and plain.lease(seq, texts[index], claim)
      if new then
        got, take.count = got + 1, take.count + 1
        take.tell(seq, new)
      elseif texts[index] or rows.known(seq) then -- Else a place without a row, which is dropped.
        local row = rows.adopt(seq, texts[index])
        local word = try(row, claim)
        if word == 'leased' then got = got + 1 end
        if word == 'aside' then aside[#aside + 1] = {seq, -row.priority} end
        again = again or word == 'back'
      end
    end
    if again then groups.open_up() end
  end
  for _, one in ipairs(aside) do zput(key('line:' .. tenant .. '\0' .. queue), one[1], one[2]) end
  return got
end

-- Gives a line its turn. Returns how many it took, of how many it could have.
function take.visit(tenant, queue, claim, allowed, room)
  local wanted = math.min(allowed, room)
  if ruled(tenant) then wanted = math.min(wanted, gates.line_room(tenant, queue)) end
  local got = wanted > 0 and take_line(tenant, queue, claim, wanted) or 0
  local full = got == room and got < allowed
  lines.done(tenant, queue, full and allowed - got or 0)
  return got, wanted
end

function take.claim_of(list)
  return {
    worker = list[1], nonce = list[2], limit = list[3], lease_us = list[4],
    tenants = set_of(list[5]), queues = set_of(list[6]), excluded = set_of(list[7]),
  }
end

local AGAIN_MAX = 5000

-- Finds what this very claim has leased already, when its answer was lost on the way: nobody else
-- knows the nonce, so the jobs would stay held for nothing. Of one line, if that is named; returns
-- how many.
function take.again(claim, tenant, queue)
  if not CONTROL[7] then return 0 end
  local before = take.count
  for _, name in ipairs({HELD, SPENT}) do
    local seqs = call('ZRANGEBYSCORE', name, '(' .. whole(NOW), whole(NOW + claim.lease_us),
      'LIMIT', 0, AGAIN_MAX)
    seqs = packs.spread(seqs, AGAIN_MAX, claim)
    rows.load(seqs)
    for _, seq in ipairs(seqs) do
      local row = rows.get(seq)
      if row and packs.leased_by(row, claim)
        and (not tenant or (row.tenant == tenant and row.queue == queue))
      then
        take.add(row)
      end
    end
  end
  return take.count - before
end

-- The leases as they are told: one flat list of sequence, row and body, and a list of those that
-- have more, each with its place and the seldom things. For a piece of a pack see lib_pieces.
function take.answer()
  core.finish()
  local seqs, at = {}, {}
  for index = 1, take.told do
    if not take.bodies[index] then
      seqs[#seqs + 1], at[#at + 1] = take.seqs[index], index
    end
  end
  for index, body in ipairs(core.values(BODIES, seqs)) do take.bodies[at[index]] = body end
  local flat, more = {}, {}
  for index = 1, take.told do
    local row, to = take.rows[index], 3 * index
    flat[to - 2] = take.seqs[index]
    flat[to - 1] = row and (row.text or rows.pack(row)) or take.texts[index]
    flat[to] = take.bodies[index]
    if row and row.flags >= ERROR then more[#more + 1] = {index, unpack(rows.seldom(row))} end
  end
  return {flat, more}
end
