-- Packs: jobs that are alike and came together wait in one value, and are held in pieces of it; see
-- `layout.py`. A job of a pack is a row to all who ask for it: one that is read off the pack, until
-- something changes it. Then the whole pack is opened: its jobs become rows of their own.
--
-- A pack stands in its line as <sequence of its first job>/<its own>/<how many wait>, in held or
-- spent, piece by piece, as <sequence of the first>/<its own>, and among the jobs of its tenant as
-- <its own>/.

local PACKS, LOADS, MARKS, SPANS = key('packs'), key('loads'), key('marks'), key('spans')
local PIECES, PIECED = key('pieces'), key('pieced')
local TRAILS, ENDED_PACKS = key('trails'), key('ended_packs')

local RECORD = '>ddI4Hc0' -- created, last, number, head; then the ids, and where each payload ends.
local HEAD = '>BBI4ddddHc0Hc0Hc0Hc0'
local PIECE = '>I4I4dddHc0Hc0' -- Then a mark for each of its jobs.

local SEQ_SIZE = 16
local MARK = '~' -- Ends the nonce of a piece; see `packs.py`.

local known, known_pieces = {}, {}

function packs.is(member) return #member > SEQ_SIZE end

-- The pack that a place is of.
function packs.of(member) return packs.get(string.sub(member, SEQ_SIZE + 2, 2 * SEQ_SIZE + 1)) end

-- The sequence of the first job in a place.
function packs.first(member) return string.sub(member, 1, SEQ_SIZE) end

-- How many jobs stand in one place of a line.
function packs.waiting(member)
  return packs.is(member) and tonumber(string.sub(member, 2 * SEQ_SIZE + 3)) or 1
end

function packs.line_of(pack) return pack.tenant .. '\0' .. pack.queue end
local function seq_of(pack, index) return wide(pack.first + index * SHARDS) end
function packs.last(pack) return seq_of(pack, pack.number - 1) end

local function spot(pack)
  return seq_of(pack, pack.taken) .. '/' .. pack.seq .. '/' .. whole(pack.number - pack.taken)
end

function packs.read_head(pack)
  pack.pieced, pack.width, pack.max_attempts, pack.keep, pack.keep_failed, pack.key_us,
    pack.priority, pack.tenant, pack.queue, pack.type, pack.start = struct.unpack(HEAD, pack.head)
  return pack
end

function packs.get(seq)
  local pack = known[seq]
  if pack ~= nil then return pack or nil end
  local text = call('HGET', PACKS, seq)
  if not text then return nil end
  pack = {seq = seq, first = tonumber(seq), text = text}
  pack.created, pack.last, pack.number, pack.head, pack.at = struct.unpack(RECORD, text)
  pack.taken, pack.left = 0, pack.number
  local marks = call('HGET', MARKS, seq)
  if marks then pack.taken, pack.left = struct.unpack('>I4I4', marks) end
  known[seq] = packs.read_head(pack)
  return pack
end

function packs.save(pack)
  call('HSET', MARKS, pack.seq, struct.pack('>I4I4', pack.taken, pack.left))
end

-- -- what is in a pack ----------------------------------------------------------------------------

-- The ids of so many jobs from an index on, in one text.
function packs.ids(pack, from, number)
  local at = pack.at + from * pack.width
  return string.sub(pack.text, at, at + number * pack.width - 1)
end

-- Where the payloads of so many jobs end.
function packs.length(pack, number)
  if number == 0 then return 0 end
  return (struct.unpack('>I4', pack.text, pack.at + pack.number * pack.width + 4 * (number - 1)))
end

function packs.lengths(pack, from, number)
  local at = pack.at + pack.number * pack.width + 4 * from
  return string.sub(pack.text, at, at + 4 * number - 1)
end

-- The payloads of so many jobs from an index on, in one text.
function packs.load(pack, from, number)
  pack.whole = pack.whole or call('HGET', LOADS, pack.seq)
  return string.sub(pack.whole, packs.length(pack, from) + 1, packs.length(pack, from + number))
end

-- The body of a job as it stands in `bodies`: what all begin with, then a payload in msgpack.
local function body_of(pack, index)
  local payload = packs.load(pack, index, 1)
  local size = #payload -- Far below 64 kB, by `packs.py`.
  local start = size < 256 and struct.pack('>BB', 0xc4, size) or struct.pack('>BH', 0xc5, size)
  return pack.start .. start .. payload, size
end

-- The cursor of a job's fact, of facts that were told as one; 0 when there is none.
function packs.cursor(first, index) return first > 0 and first + index * SHARDS or 0 end

-- A job of a pack as a row, of a piece if it is in one.
function packs.job(pack, index, piece)
  local body, size = body_of(pack, index)
  local row = {
    state = ENQUEUED, flags = 0, reason = 0, attempt = 0, fence = 0, lapses = 0, misses = 0,
    priority = pack.priority, created = pack.created, updated = pack.created, run_at = pack.created,
    expires = 0, lease = 0, last = packs.cursor(pack.last, index), nonce = '',
    worker = '', max_attempts = pack.max_attempts, keep = pack.keep,
    keep_failed = pack.keep_failed, key_us = pack.key_us, size = size, tenant = pack.tenant,
    id = packs.ids(pack, index, 1), queue = pack.queue, type = pack.type, tail = '', body = body,
  }
  if piece then
    row.state, row.attempt, row.fence = PROCESSING, 1, 1
    row.nonce, row.worker, row.updated, row.lease = piece.nonce, piece.worker, piece.at, piece.lease
    row.last = packs.cursor(piece.last, index - piece.from)
  end
  return row
end

-- The same, known by its sequence: one row for each job, whoever asks.
function packs.row_at(pack, index, piece)
  local seq = seq_of(pack, index)
  local row = rows.cached(seq)
  if row then return row end
  row = packs.job(pack, index, piece)
  row.seq, row.packed = seq, pack
  return rows.cached(seq, row)
end

-- A job that leaves its pack, and is known as a row of its own from now on.
function packs.row(pack, index)
  local row = packs.job(pack, index)
  row.seq = seq_of(pack, index)
  return row
end

-- -- pieces ---------------------------------------------------------------------------------------

function packs.piece(member)
  local piece = known_pieces[member]
  if piece ~= nil then return piece or nil end
  local text = call('HGET', PIECES, member)
  if not text then return nil end
  local at
  piece = {member = member, first = tonumber(packs.first(member))}
  piece.from, piece.number, piece.at, piece.lease, piece.last, piece.nonce, piece.worker, at =
    struct.unpack(PIECE, text)
  piece.marks = string.sub(text, at)
  known_pieces[member] = piece
  return piece
end

-- The piece that a sequence is in; nil when it is in none.
function packs.piece_at(number)
  local member = call('ZREVRANGEBYSCORE', PIECED, whole(number), '-inf', 'LIMIT', '0', '1')[1]
  local piece = member and packs.piece(member)
  return piece and number < piece.first + piece.number * SHARDS and piece or nil
end

function packs.save_piece(piece)
  known_pieces[piece.member] = piece
  call('HSET', PIECES, piece.member, struct.pack(PIECE, piece.from, piece.number, piece.at,
    piece.lease, piece.last, #piece.nonce, piece.nonce, #piece.worker, piece.worker) .. piece.marks)
end

function packs.drop_piece(piece)
  known_pieces[piece.member] = false
  call('HDEL', PIECES, piece.member)
  call('ZREM', PIECED, piece.member)
  call('ZREM', HELD, piece.member)
  call('ZREM', SPENT, piece.member)
end

-- Holds the next so many jobs of a pack for a claim.
function packs.hold(pack, number, claim, last)
  local member = seq_of(pack, pack.taken) .. '/' .. pack.seq
  packs.save_piece({
    member = member, first = pack.first + pack.taken * SHARDS, from = pack.taken, number = number,
    at = NOW, lease = NOW + claim.lease_us, last = last, nonce = claim.nonce .. MARK,
    worker = claim.worker, marks = string.rep('0', number),
  })
  call('ZADD', PIECED, packs.first(member), member)
  call('ZADD', pack.max_attempts > 1 and HELD or SPENT, whole(NOW + claim.lease_us), member)
end

-- Whether a row or piece was leased by this very claim.
function packs.leased_by(one, claim)
  return one.nonce == claim.nonce or one.nonce == claim.nonce .. MARK
end

function packs.pieces_of(pack)
  local found = call('ZRANGEBYSCORE', PIECED, pack.seq, packs.last(pack))
  for index, member in ipairs(found) do found[index] = packs.piece(member) end
  return found
end

-- The rows of a piece's jobs that have not ended, added to a list.
function packs.add_held(pack, piece, list)
  for index = 0, piece.number - 1 do
    if string.byte(piece.marks, index + 1) == 48 then
      list[#list + 1] = packs.row_at(pack, piece.from + index, piece)
    end
  end
end

-- -- places ---------------------------------------------------------------------------------------

-- Puts what waits of a pack into its line.
function packs.enter(pack)
  local line = packs.line_of(pack)
  local rank, member = whole(-pack.priority), spot(pack)
  call('ZADD', key('line:' .. line), rank, member)
  call('ZADD', key('packed:' .. line), rank, member)
end

function packs.leave(pack)
  if pack.taken == pack.number then return end
  local line, member = packs.line_of(pack), spot(pack)
  call('ZREM', key('line:' .. line), member)
  call('ZREM', key('packed:' .. line), member)
end

-- Lists a pack among the jobs of its tenant, by the first that is still in it.
function packs.list(pack, index)
  call('ZADD', key('of:' .. pack.tenant), seq_of(pack, index), pack.seq .. '/')
end

-- What a pack is found by: the least and the greatest of its ids.
local function span(pack)
  return rows.name(pack.tenant, packs.ids(pack, 0, 1)) .. '\0'
    .. packs.ids(pack, pack.number - 1, 1) .. '\0' .. pack.seq
end

-- Writes a new pack.
function packs.write(pack)
  call('HSET', PACKS, pack.seq,
    struct.pack(RECORD, pack.created, pack.last, pack.number, #pack.head, pack.head) .. pack.text)
  call('HSET', LOADS, pack.seq, pack.whole)
  call('ZADD', SPANS, '0', span(pack))
  packs.list(pack, 0)
  packs.enter(pack)
end

-- Forgets a pack, which has nothing in line any more; where there is a log, its ids stay for as long
-- as something of them is in it.
function packs.drop(pack)
  call('HDEL', LOADS, pack.seq)
  call('ZREM', key('of:' .. pack.tenant), pack.seq .. '/')
  if call('HEXISTS', TRAILS, pack.seq) == 1 then
    pack.taken, pack.left = pack.number, 0
    packs.save(pack)
    call('ZADD', ENDED_PACKS, whole(heads.cursor), pack.seq)
  else
    packs.forget(pack)
  end
end

function packs.forget(pack)
  call('HDEL', PACKS, pack.seq)
  call('HDEL', MARKS, pack.seq)
  call('ZREM', SPANS, span(pack))
  known[pack.seq] = false
end
