-- Packing: how packs are made, opened and found, and what is remembered of their jobs.

local SPANS, TRAILS, ENDED_PACKS = key('spans'), key('trails'), key('ended_packs')

-- -- making and opening ---------------------------------------------------------------------------

-- A pack of new jobs. Its ids grow. It has no sequence yet.
function packs.fresh(number, head, ids, lengths, load)
  local pack = {created = NOW, last = 0, number = number, head = head, taken = 0, left = number,
    text = ids .. lengths, at = 1, whole = load}
  return packs.read_head(pack)
end

-- The jobs of such a pack, as rows that are nowhere yet.
function packs.unrolled(pack)
  local list = {}
  for index = 0, pack.number - 1 do
    list[index + 1] = packs.job(pack, index)
    list[index + 1].name = rows.name(pack.tenant, list[index + 1].id)
  end
  return list
end

-- Whether a job of such a pack may be known already, in a row or in a pack, or its name have facts.
local function some_known(pack)
  local names = {}
  for index = 0, pack.number - 1 do
    names[index + 1] = rows.name(pack.tenant, packs.ids(pack, index, 1))
  end
  for _, seq in ipairs(core.values(NAMES, names)) do
    if seq then return true end
  end
  if EVENTS then
    for _, cursor in ipairs(call('ZMSCORE', TAILS, unpack(names))) do
      if cursor then return true end
    end
  end
  if heads.packs == 0 then return false end
  -- The ids of all packs that begin as these do, from the first to the last.
  local first, last = packs.ids(pack, 0, 1), packs.ids(pack, pack.number - 1, 1)
  local stem = string.sub(names[1], 1, #names[1] - #first + STEM_SIZE)
  local spans = call('ZRANGEBYLEX', SPANS, '[' .. stem, '(' .. names[pack.number] .. '\1')
  for _, member in ipairs(spans) do
    local other = string.match(member, '^[^%z]*%z([^%z]*)%z')
    if not packs.below(other, first) then return true end
  end
  return false
end

-- Keeps such a pack. False when its jobs must be looked at one by one.
function packs.insert(pack)
  if ruled(pack.tenant) or some_known(pack) then return false end
  pack.first = core.tick('seq')
  pack.seq = wide(pack.first)
  core.set_head('seq', pack.first + (pack.number - 1) * SHARDS)
  if heads.packs == 0 then core.set_head('packs', 1) end
  pack.last = log.facts(pack.number, 'enqueued', pack.tenant, packs.ids(pack, 0, pack.number),
    pack.queue, pack.type, 0, 0, nil, nil, 0)
  packs.write(pack)
  counts.add(pack.tenant, pack.queue, nil, ENQUEUED, pack.number, #pack.whole)
  lines.touch(pack.tenant, pack.queue)
  return true
end

-- All jobs of a pack that have not ended, as rows, in the order of their sequence.
function packs.rows(pack)
  local list = {}
  for _, piece in ipairs(packs.pieces_of(pack)) do packs.add_held(pack, piece, list) end
  for index = pack.taken, pack.number - 1 do list[#list + 1] = packs.row_at(pack, index) end
  return list
end

-- Gives all jobs of a pack rows of their own.
function packs.open(pack)
  local line = key('line:' .. packs.line_of(pack))
  for _, row in ipairs(packs.rows(pack)) do
    row.packed = nil
    rows.add(row, row.body)
    if row.state == ENQUEUED then
      zput(line, row.seq, -row.priority)
    else
      zput(jobs.held_key(row), row.seq, row.lease)
    end
  end
  packs.leave(pack)
  for _, piece in ipairs(packs.pieces_of(pack)) do packs.drop_piece(piece) end
  packs.drop(pack)
end

-- -- trails ---------------------------------------------------------------------------------------
-- The last facts about jobs that ended in their pack, as `tails` are of others: by the index of the
-- first, how many, and the cursor of the first.

local TRAIL = '>I4I4d'
local TRAIL_SIZE = struct.size(TRAIL)

function packs.trail(pack, from, number, cursor)
  call('HSET', TRAILS, pack.seq,
    (call('HGET', TRAILS, pack.seq) or '') .. struct.pack(TRAIL, from, number, cursor))
end

local function trail_of(pack, index)
  local trail = call('HGET', TRAILS, pack.seq) or ''
  for at = 1, #trail, TRAIL_SIZE do
    local from, number, cursor = struct.unpack(TRAIL, trail, at)
    if index >= from and index < from + number then return cursor + (index - from) * SHARDS end
  end
end

-- Forgets the trails of packs that the log says nothing of any more, so many at most.
function packs.prune(floor, most)
  local past = call('ZRANGEBYSCORE', ENDED_PACKS, '-inf', whole(floor), 'LIMIT', 0, most)
  for _, seq in ipairs(past) do
    local pack = packs.get(seq)
    if pack then packs.forget(pack) end
    call('HDEL', TRAILS, seq)
    call('ZREM', ENDED_PACKS, seq)
  end
end

-- -- finding --------------------------------------------------------------------------------------

-- Byte by byte: Lua's own order is that of the server's locale.
function packs.below(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = string.byte(one, at), string.byte(other, at)
    if left ~= right then return left < right end
  end
  return #one < #other
end

local function index_of(pack, id)
  if #id ~= pack.width then return nil end
  local from, ids = 1, packs.ids(pack, 0, pack.number)
  while true do
    local at = string.find(ids, id, from, true)
    if not at then return nil end
    if (at - 1) % pack.width == 0 then return (at - 1) / pack.width end
    from = at + 1
  end
end

local function living(pack, index)
  if index >= pack.taken then return packs.row_at(pack, index) end
  local piece = packs.piece_at(pack.first + index * SHARDS)
  local at = piece and index - piece.from + 1
  return piece and string.byte(piece.marks, at) == 48 and packs.row_at(pack, index, piece) or nil
end

-- What `look` finds for a name in one of the packs that may have it; nil when it finds nothing.
local function search(name, look)
  if heads.packs == 0 then return nil end
  local size = string.match(name, '^(%d+):')
  local start = #size + 1 + tonumber(size)
  local id = string.sub(name, start + 1)
  local members = call('ZRANGEBYLEX', SPANS, '[' .. string.sub(name, 1, start + STEM_SIZE),
    '(' .. name .. '\1')
  for _, member in ipairs(members) do
    local last, seq = string.match(member, '^[^%z]*%z([^%z]*)%z(.*)$')
    local pack = not packs.below(last, id) and packs.get(seq)
    local index = pack and index_of(pack, id)
    local found = index and look(pack, index)
    if found then return found end
  end
  return nil
end

-- The sequence of a job that is in a pack; nil when there is none of this name.
function packs.find(name)
  local row = search(name, living)
  return row and row.seq
end

-- The cursor of the last fact about a job that ended in its pack; nil when none is known.
function packs.tail(name) return search(name, trail_of) end

-- The sequences of the jobs that are in these places: of those in pieces that have not ended. Ends
-- when it has so many, for each place may be many jobs. With a claim: no pieces but its own.
function packs.spread(members, most, claim)
  local list = {}
  for _, member in ipairs(members) do
    if #list >= most then break end
    if not packs.is(member) then
      list[#list + 1] = member
    else
      local pack, piece, held = packs.of(member), packs.piece(member), {}
      if pack and piece and (not claim or packs.leased_by(piece, claim)) then
        packs.add_held(pack, piece, held)
      end
      for _, row in ipairs(held) do list[#list + 1] = row.seq end
    end
  end
  return list
end
