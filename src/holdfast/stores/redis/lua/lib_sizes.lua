-- Sizes: how much of its share a journal uses, as `Size`; in its field '#': the number of steps, of
-- signals, and their bytes (doubles). The bytes count for the cap of the tenant too.

local has = rows.has
local AT_SIZE = 8
local FORMAT, FORMAT_SIZE = '>ddd', 24

local bytes_of = {} -- By sequence: bytes of journals, as this call has left them.

function sizes.key(row) return key('journal:' .. row.seq) end

-- What the entries of a journal add up to.
function sizes.counted(row)
  local flat, size = redis.pcall('HGETALL', sizes.key(row)), {steps = 0, signals = 0, bytes = 0}
  for at = 1, #flat, 2 do
    local letter = string.sub(flat[at], 1, 1)
    if letter ~= '#' then
      local what = letter == 'g' and 'signals' or 'steps'
      size[what] = size[what] + 1
      size.bytes = size.bytes + math.max(0, #flat[at + 1] - AT_SIZE)
    end
  end
  return size
end

-- The size of a journal as it says it; nil if that cannot be read.
local function told(row)
  local text = redis.pcall('HGET', sizes.key(row), '#')
  if type(text) ~= 'string' or #text ~= FORMAT_SIZE then return nil end
  local steps, signals, bytes = struct.unpack(FORMAT, text)
  return {steps = steps, signals = signals, bytes = bytes}
end

-- The size of the journal of a job, of which nothing waits to be written. That of a job with parents has their join.
function sizes.of(row)
  if has(row, JOURNAL) then
    local size = told(row) or sizes.counted(row)
    bytes_of[row.seq] = size.bytes
    return size
  end
  local parents = journal.join(row, '')
  if not parents then return {steps = 0, signals = 0, bytes = 0} end
  return {steps = 1, signals = 0, bytes = #whole(parents.total)}
end

-- The bytes that count for the cap of the tenant.
function sizes.bytes(row)
  if not has(row, JOURNAL) then return 0 end
  if not bytes_of[row.seq] then
    hflush(sizes.key(row))
    sizes.of(row)
  end
  return bytes_of[row.seq]
end

-- Stores the new size of a journal, and counts by how much it has grown.
function sizes.save(row, size)
  counts.grow(row, size.bytes - sizes.bytes(row))
  bytes_of[row.seq] = size.bytes
  hput(sizes.key(row), '#', struct.pack(FORMAT, size.steps, size.signals, size.bytes))
end

-- How many entries a lease leaves out, as `Size.left_out`; none where the size cannot be read.
function sizes.left_out(row)
  local size = has(row, JOURNAL) and told(row)
  if not size then return 0 end
  local entries = size.steps + size.signals
  return size.bytes + entries * ENTRY_NAME_MAX > LEASE_JOURNAL_MAX and entries or 0
end
