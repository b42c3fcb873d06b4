-- count: {kind, tenant or nil, part or nil, after or nil, limit} -> {1 while due jobs wait to be
-- moved, {tenant, part, the counts, oldest or '', slots}, ...}. A due job counts as enqueued.

local DUE_MAX, PRIORITIES_MAX, HEAD_MAX = 2000, 100, 500

local kind, tenant, part, after, limit = ARGS[1], ARGS[2], ARGS[3], ARGS[4], ARGS[5]

local function earlier(one, other)
  if not one or not other then return one or other end
  return math.min(one, other)
end

-- The first job of a line that it was enqueued in ready, from a rank on; those that came otherwise
-- are in `ages`.
local function natural(line, rank)
  local first = call('ZRANGE', line, rank, rank)[1]
  local pack = first and packs.is(first) and packs.of(first)
  if pack then return pack.created end
  local seqs = call('ZRANGE', line, rank, rank + HEAD_MAX - 1)
  rows.load(seqs)
  for _, seq in ipairs(seqs) do
    if packs.is(seq) then return packs.of(seq).created end
    local row = rows.get(seq)
    if row and not has(row, AGED) then return row.run_at end
  end
end

-- Since when the longest-waiting ready job of a line could have run. In each priority that is the
-- first one; past a few hundred heads of a line that came otherwise it is a little late.
local function oldest(name)
  local line, found = key('line:' .. name), nil
  local first = call('ZRANGE', key('ages:' .. name), 0, 0, 'WITHSCORES')
  if first[2] then found = tonumber(first[2]) end
  local rank = 0
  for _ = 1, PRIORITIES_MAX do
    local head = call('ZRANGE', line, rank, rank, 'WITHSCORES')
    if not head[1] then break end
    found = earlier(found, natural(line, rank))
    rank = rank + call('ZCOUNT', line, head[2], head[2])
  end
  return found
end

local function tally(name)
  local its_tenant, its_part = string.match(name, '^([^%z]*)%z(.*)$')
  local record = counts.of(kind, its_tenant, its_part)
  local slots, jobs_there = gates.slots(kind .. '\0' .. name), false
  local numbers = {}
  for state = WAITING, CANCELED do
    numbers[state] = record[state]
    jobs_there = jobs_there or record[state] ~= 0
  end
  if not jobs_there and slots == 0 then return nil end
  local since = kind == 'q' and record[ENQUEUED] > 0 and oldest(name)
  return {its_tenant, its_part, numbers, since and whole(since) or '', slots}
end

local function page(from)
  local last = '+'
  if tenant then
    last = '(' .. tenant .. '\1'
    if not from then from = '[' .. tenant .. '\0' end
  end
  return call('ZRANGEBYLEX', key('scopes:' .. kind), from or '-', last, 'LIMIT', 0, limit)
end

core.insist()
local moved = repair.promote(DUE_MAX)
core.finish()
local answer = {moved == DUE_MAX and 1 or 0}
if part and tenant then
  answer[2] = tally(tenant .. '\0' .. part)
  return answer
end
local from = after and '(' .. after
repeat
  local names = page(from)
  for _, name in ipairs(names) do
    local found = nil
    if not part or string.sub(name, -#part - 1) == '\0' .. part then found = tally(name) end
    if found and #answer <= limit then answer[#answer + 1] = found end
    from = '(' .. name
  end
until #names < limit or #answer > limit
return answer
