-- Pieces: how a claim takes jobs from the front of a pack, and how those are completed, many at a
-- time. Each has a lease of its own: what is not a completion opens the pack.

-- Leases jobs as rows of their own: their records stay after their end.
local function take_rows(pack, from, number, claim, last)
  for index = 0, number - 1 do
    local row = packs.row(pack, from + index)
    row.state, row.attempt, row.fence = PROCESSING, 1, 1
    row.nonce, row.worker, row.updated, row.lease = claim.nonce, claim.worker, NOW,
      NOW + claim.lease_us
    row.last = packs.cursor(last, index)
    plain.adopt(row)
    take.tell(row.seq, row.text, row.body)
  end
  pack.left = pack.left - number
end

-- What a claim is told of a piece: a row with no state, which is one of many.
local function tell(pack, from, number, claim)
  local text = struct.pack('>BdddI4I4', 0, pack.created, NOW, NOW + claim.lease_us, number,
    packs.length(pack, from)) .. pack.head
  local many = packs.ids(pack, from, number) .. packs.lengths(pack, from, number)
    .. packs.load(pack, from, number)
  take.tell(wide(pack.first + from * SHARDS), text, many, number)
end

-- Leases up to so many jobs of a pack that was taken out of its line; returns how many.
function pieces.take(member, claim, most)
  local pack = packs.of(member)
  if not pack then return 0 end -- A place without a pack, which is dropped.
  local from, number = pack.taken, math.min(most, pack.number - pack.taken)
  packs.leave(pack)
  local last = log.facts(number, 'leased', pack.tenant, packs.ids(pack, from, number), pack.queue,
    pack.type, 1, 1, NOW + claim.lease_us, claim.worker, packs.cursor(pack.last, from))
  if pack.pieced == 1 then
    packs.hold(pack, number, claim, last)
    tell(pack, from, number, claim)
    counts.add(pack.tenant, pack.queue, ENQUEUED, PROCESSING, number, 0)
  else
    take_rows(pack, from, number, claim, last)
  end
  pack.taken = from + number
  if pack.left == 0 then
    packs.drop(pack)
    return number
  end
  packs.save(pack)
  if pack.taken < pack.number then
    packs.enter(pack)
    if pack.pieced == 0 then packs.list(pack, pack.taken) end
  end
  return number
end

-- Whether these are jobs of one piece, held by this claim, of which none has ended.
local function fits(pack, piece, from, tenant, nonce, number, ids)
  return piece.lease > NOW and piece.nonce == nonce and nonce ~= '' and pack.keep <= 0
    and pack.tenant == tenant and not ruled(tenant)
    and packs.ids(pack, piece.from + from, number) == ids
    and not string.find(string.sub(piece.marks, from + 1, from + number), '1', 1, true)
end

-- Completes so many jobs of a piece, whose records go at once. False, and nothing is done, when one of
-- them is not to be completed so.
local function complete(piece, tenant, nonce, from, number, ids)
  local pack = packs.of(piece.member)
  if not fits(pack, piece, from, tenant, nonce, number, ids) then return false end
  local start = piece.from + from
  local last = log.facts(number, 'completed', tenant, ids, pack.queue, pack.type, 1, 1, nil, nil,
    packs.cursor(piece.last, from))
  if EVENTS then packs.trail(pack, start, number, last) end
  core.all_over(tenant, ids, pack.width)
  counts.add(tenant, pack.queue, PROCESSING, nil, number,
    packs.length(pack, start + number) - packs.length(pack, start))
  piece.marks = string.sub(piece.marks, 1, from) .. string.rep('1', number)
    .. string.sub(piece.marks, from + number + 1)
  pack.left = pack.left - number
  if string.find(piece.marks, '0', 1, true) then
    packs.save_piece(piece)
  else
    packs.drop_piece(piece)
  end
  if pack.left == 0 then packs.drop(pack) else packs.save(pack) end
  return true
end

-- Completes jobs in a row, whose records go at once, piece by piece. Returns a list of those that are
-- not to be completed so, by their place from 0; nothing was done for these.
function pieces.complete(tenant, nonce, first, number, ids)
  local left, width, at = {}, #ids / number, 0
  while at < number do
    local seq = first + at * SHARDS
    local piece = packs.piece_at(seq)
    local from = piece and (seq - piece.first) / SHARDS
    local part = piece and math.min(number - at, piece.number - from) or 1
    if not piece or not complete(piece, tenant, nonce, from, part,
      string.sub(ids, at * width + 1, (at + part) * width))
    then
      for index = at, at + part - 1 do left[#left + 1] = index end
    end
    at = at + part
  end
  return left
end
