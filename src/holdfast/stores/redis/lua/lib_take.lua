-- Take: which jobs a claim leases, line by line.
--
-- A claim is {worker, nonce, limit, lease_us, tenants or nil, queues or nil, excluded groups or nil}.

local ASIDE_MAX = 10000 -- Jobs of excluded groups that one claim looks past.

-- Tells of a job, or of a piece of a pack with so many, which is leased; `body` if that is known.
function take.tell(seq, text, body, number)
  local told = take.told + 1
  take.numbers[told] = number
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
        local word = row and try(row, claim)
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

local LINES_PER_CLAIM = 8
local VISITS_MAX = 2000 -- Lines in which one turn finds nothing.

-- As `scope.rounds`: for so many, whose weights are this in all.
function take.rounds(room, number, weights)
  return math.max(1, math.floor(room / weights),
    math.floor(room * number / (weights * LINES_PER_CLAIM)))
end

-- Leases up to so many jobs of a tenant, from its lines in turn; returns how many, and the queues
-- that were visited.
local function take_lines(tenant, claim, wanted)
  local got, visited, dry, dried = 0, {}, {}, 0
  while got < wanted and dried < VISITS_MAX do
    local found = {}
    for _, queue in ipairs(lines.of_turn(tenant, claim.queues, wanted - got + dried)) do
      if not dry[queue] then found[#found + 1] = queue end
    end
    if #found == 0 then break end
    local share = take.rounds(wanted - got, #found, #found)
    for _, queue in ipairs(found) do
      if got == wanted then break end
      local most = math.min(share, wanted - got)
      local asked = math.min(most, gates.line_room(tenant, queue))
      local taken = asked > 0 and take_line(tenant, queue, claim, asked) or 0
      got = got + taken
      if taken < most then
        dry[queue] = true
        dried = dried + 1
      end
      lines.visited(tenant, queue)
      visited[queue] = true
    end
  end
  return got, visited
end

-- Gives a tenant its turn. Returns how many jobs it took, and whether it has nothing more.
function take.turn(tenant, claim, allowed, room)
  local wanted = math.min(allowed, room)
  local got, visited = take_lines(tenant, claim, wanted)
  local full = got == room and got < allowed
  lines.done(tenant, full and allowed - got or 0, visited)
  return got, got < wanted
end

function take.claim_of(list)
  return {
    worker = list[1], nonce = list[2], limit = list[3], lease_us = list[4],
    tenants = list[5], queues = list[6], excluded = set_of(list[7]),
  }
end

-- -- repeats --------------------------------------------------------------------------------------
-- A claim that gave leases is known by its nonce for a time: until when, and the sequences of its
-- jobs. The key goes by itself, by the server's clock.

local SEQ_SIZE = 16

local function remember(claim)
  if take.told == 0 then return end
  local seqs, to = {wide(NOW + REPEAT_US)}, 1
  for index = 1, take.told do
    for place = 0, (take.numbers[index] or 1) - 1 do
      to = to + 1
      seqs[to] = place == 0 and take.seqs[index] or wide(take.seqs[index] + place * SHARDS)
    end
  end
  call('SET', claim_key(claim.nonce), table.concat(seqs), 'PX', whole(REPEAT_US / 1000))
end

-- The row of a held job, also of one that is in a piece of a pack.
local function held(seq)
  local row = rows.get(seq)
  if row or heads.packs == 0 then return row end
  local number = tonumber(seq)
  local piece = packs.piece_at(number)
  local pack = piece and packs.of(piece.member)
  local at = piece and (number - piece.first) / SHARDS
  if not pack or string.byte(piece.marks, at + 1) ~= 48 then return nil end
  return packs.row_at(pack, piece.from + at, piece)
end

-- Whether a claim asks for jobs like this: whoever brings another's nonce gets none of its leases.
local function asked_for(claim, row)
  if not claim.of_tenants then
    claim.of_tenants, claim.of_queues = set_of(claim.tenants) or {}, set_of(claim.queues) or {}
  end
  return (not claim.tenants or claim.of_tenants[row.tenant])
    and (not claim.queues or claim.of_queues[row.queue])
end

-- Whether this very claim was made before. Then it gives those of its leases that still hold.
function take.again(claim)
  local text = call('GET', claim_key(claim.nonce))
  if not text or tonumber(string.sub(text, 1, SEQ_SIZE)) <= NOW then return false end
  for at = SEQ_SIZE + 1, #text, SEQ_SIZE do
    local row = held(string.sub(text, at, at + SEQ_SIZE - 1))
    if row and row.state == PROCESSING and row.lease > NOW and packs.leased_by(row, claim)
      and asked_for(claim, row)
    then
      take.add(row)
    end
  end
  return true
end

-- The leases as they are told: one flat list of sequence, row and body, and a list of those that
-- have more, each with its place and the seldom things. For a piece of a pack see lib_pieces. `known`:
-- the claim is remembered already.
function take.answer(claim, known)
  if not known then remember(claim) end
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
