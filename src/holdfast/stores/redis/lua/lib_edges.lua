-- Edges: which jobs await the end of a job. They are stored in parts, so that each step reads few.
--
--   edges  hash: seq -> the first part; seq:1, seq:2, ... -> the further ones, EDGES_PART edges in
--          each. A part starts with the number of parts (2 bytes); an edge is what a failure does
--          (f fail, r run, s skip; F, R, S if the row of its target should have its join), its target
--          and the name of the join
--
-- A part that is small and the only one is in the row (flag ROW_EDGES): so most jobs of flows need no
-- entry here. If a call leaves edges of such a job to later calls, it stores them here.

local EDGES_OF = key('edges')
local PARTS_MAX = math.ceil(EDGES_MAX / EDGES_PART)

local texts = {} -- Parts that were read, by field.

function edges.field(seq, number) return number == 0 and seq or seq .. ':' .. whole(number) end

-- Reads parts, together.
function edges.load(fields)
  local missing = {}
  for _, field in ipairs(fields) do
    if texts[field] == nil then missing[#missing + 1] = field end
  end
  for at, text in ipairs(base.fetch('HMGET', EDGES_OF, missing)) do texts[missing[at]] = text end
end

-- A part of the edges of a job; false if there is none.
local function part(seq, number)
  local field = edges.field(seq, number)
  if texts[field] == nil then edges.load({field}) end
  return texts[field]
end

-- What the flags of a new row say of its parents and its edges, from the options of enqueue.lua. What
-- is not in the row is added to the fields that are stored with it.
function edges.new_flags(job, options, new_parents, new_edges)
  local parents, parts, flags = options[5] or 0, options[6], 0
  if parents == 1 then
    flags = ROW_JOIN
  elseif parents > 0 then
    local to = #new_parents
    new_parents[to + 1] = job.name
    new_parents[to + 2] = struct.pack('>I4I4I4', parents, parents, 0) .. job.seq
    flags = PARENTS
  end
  if parents > 0 and options[7] then flags = flags + ENDS_WITH_PARENTS end
  if parts == true then
    flags = flags + EDGES + ROW_EDGES
  elseif parts then
    edges.fields(job.seq, parts, new_edges)
    flags = flags + EDGES
  end
  return flags
end

-- Has the edges of a job read from its row, if they are there.
function edges.know(row)
  if rows.has(row, ROW_EDGES) and texts[row.seq] == nil then texts[row.seq] = rows.edges(row) end
end

-- Stores the edges of a job that are in its row, for later calls.
function edges.spill(seq) if texts[seq] then hput(EDGES_OF, seq, texts[seq]) end end

function edges.number_of_parts(seq)
  local text = part(seq, 0)
  return text and #text >= 2 and math.min(PARTS_MAX, (struct.unpack('>H', text))) or 1
end

-- The edges of a part in one list: what a failure does, target, join; and so on. What cannot be
-- read ends it.
function edges.read(seq, number)
  local text, found, at, to = part(seq, number) or '', {nil, nil, nil}, 3, 0
  while at <= #text do
    local fine, how, target, name, next_at = pcall(struct.unpack, '>c1Hc0Hc0', text, at)
    if not fine then break end
    found[to + 1], found[to + 2], found[to + 3] = how, target, name
    at, to = next_at, to + 3
  end
  return found
end

local decoded = 0 -- Values of `decode` that are in its list.

local function decode(text, parent, start, into)
  local at, size = 3, #text
  while at <= size do
    local how, target, name, next_at = struct.unpack('>c1Hc0Hc0', text, at)
    local to = decoded
    into[to + 1], into[to + 2], into[to + 3], into[to + 4] = parent, how, start .. target, name
    at, decoded = next_at, to + 4
  end
end

-- Adds the edges that are in the row of a job to a list of so many values, as lib_joins lists them.
-- What cannot be read ends them. Returns how many values the list has now.
function edges.add(parent, start, into, number)
  decoded = number
  if texts[parent.seq] then pcall(decode, texts[parent.seq], parent, start, into) end
  return decoded
end

-- The fields and the parts of a new job, added to a list.
function edges.fields(seq, parts, into)
  for at, text in ipairs(parts) do
    into[#into + 1], into[#into + 2] = edges.field(seq, at - 1), text
  end
end

-- All parts of the edges of a job.
function edges.parts(row)
  edges.know(row)
  local fields, found = {}, {}
  for number = 1, edges.number_of_parts(row.seq) do
    fields[number] = edges.field(row.seq, number - 1)
  end
  edges.load(fields)
  for _, field in ipairs(fields) do
    if texts[field] then found[#found + 1] = texts[field] end
  end
  return found
end

function edges.drop(seq)
  for number = 1, edges.number_of_parts(seq) do
    hput(EDGES_OF, edges.field(seq, number - 1), false)
  end
end

-- Whether a job that has not ended may still read the result of this one; and how many edges were
-- looked at.
function edges.is_wanted(row)
  if rows.has(row, FOLLOWING) then return true, 0 end
  edges.know(row)
  local looked = 0
  for number = 1, edges.number_of_parts(row.seq) do
    local list, names, seqs = edges.read(row.seq, number - 1), {}, {}
    for at = 2, #list, 3 do names[#names + 1] = rows.name(row.tenant, list[at]) end
    looked = looked + #names
    rows.find(names)
    for _, name in ipairs(names) do seqs[#seqs + 1] = rows.seq_of(name) end
    for _, target in ipairs(rows.list(seqs)) do
      if target.state < ENDED then return true, looked end
    end
  end
  return false, looked
end
