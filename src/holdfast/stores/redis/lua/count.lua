-- count: {kind, tenant or nil, part or nil, after or nil, limit, due_from} -> {the next due_from or
-- '', {tenant, part, number of jobs in each state, oldest or '', slots}, ...}. Reads only.
--
-- A job that is due counts as enqueued, although it may still be stored as scheduled or retrying.
-- One call reads DUE_MAX of these from rank `due_from` on. The first call (due_from 0) answers with
-- the counts; each further one with what its due jobs add to and take from them. Of the platform's
-- scopes (those without a tenant) with settings the running jobs are counted.

local DUE_MAX, PRIORITIES_MAX, HEAD_MAX = 2000, 100, 500

local kind, tenant, part, after, limit, due_from = unpack(ARGS, 1, 6)

-- By name of the scope: the number of its due jobs in each stored state, and the oldest.
local due = {}

local function part_of(row)
  if kind == 't' then return '' end
  if kind == 'q' then return row.queue end
  return row.group
end

-- Reads the due jobs. Returns the rank of the next ones; nil if there are none.
local function read_due()
  local range, seqs = call('ZRANGE', key('due'), due_from, due_from + DUE_MAX - 1, 'WITHSCORES'), {}
  for at = 1, #range, 2 do
    if tonumber(range[at + 1]) <= NOW then seqs[#seqs + 1] = range[at] end
  end
  for _, row in ipairs(rows.list(seqs)) do
    local its_part = part_of(row)
    if its_part then
      local name = row.tenant .. '\0' .. its_part
      local found = due[name] or {[SCHEDULED] = 0, [RETRYING] = 0, oldest = row.run_at}
      due[name] = found
      found[row.state] = found[row.state] + 1
      found.oldest = math.min(found.oldest, row.run_at)
    end
  end
  return #seqs == DUE_MAX and due_from + DUE_MAX or nil
end

local function earlier(one, other)
  if not one or not other then return one or other end
  return math.min(one, other)
end

-- Since when the first job of a line from a rank on is ready, among those that were ready when they
-- were enqueued; the others are in `ages`.
local function ready_since(line, rank)
  for _, row in ipairs(rows.list(call('ZRANGE', line, rank, rank + HEAD_MAX - 1))) do
    if not rows.has(row, AGED) then return row.run_at end
  end
end

-- Since when the job of a line that waits longest is ready. Within a priority that is the first
-- one; after HEAD_MAX jobs that became ready otherwise it may be a later one.
local function oldest(name)
  local line, found = key('line:' .. name), nil
  local first = call('ZRANGE', key('ages:' .. name), 0, 0, 'WITHSCORES')
  if first[2] then found = tonumber(first[2]) end
  local rank = 0
  for _ = 1, PRIORITIES_MAX do
    local head = call('ZRANGE', line, rank, rank, 'WITHSCORES')
    if not head[1] then break end
    found = earlier(found, ready_since(line, rank))
    rank = rank + call('ZCOUNT', line, head[2], head[2])
  end
  return found
end

-- The answer for one scope; nil if it has neither jobs nor slots.
local function tally(name)
  local its_tenant, its_part = string.match(name, '^([^%z]*)%z(.*)$')
  local numbers, slots, any, moved = {}, 0, false, due[name]
  local record = due_from == 0 and counts.of(kind, its_tenant, its_part)
  for state = WAITING, CANCELED do numbers[state] = record and record[state] or 0 end
  if moved then
    numbers[SCHEDULED] = numbers[SCHEDULED] - moved[SCHEDULED]
    numbers[RETRYING] = numbers[RETRYING] - moved[RETRYING]
    numbers[ENQUEUED] = numbers[ENQUEUED] + moved[SCHEDULED] + moved[RETRYING]
  end
  for state = WAITING, CANCELED do any = any or numbers[state] ~= 0 end
  if record then slots = limits.slots(kind .. '\0' .. name) end
  if not any and slots == 0 then return nil end
  local since = nil
  if kind == 'q' then
    since = moved and moved.oldest
    if record and record[ENQUEUED] > 0 then since = earlier(since, oldest(name)) end
  end
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

-- The answer for the platform's scopes of a kind.
local function of_platform()
  local all, parts, answer = call('HGETALL', key('running')), {}, {''}
  for at = 1, #all, 2 do
    local name = string.match(all[at], '^' .. kind .. '%z%z(.*)$')
    local is_asked = name and (not part or part == name) and (not after or '\0' .. name > after)
    if is_asked then parts[#parts + 1] = {name, tonumber(all[at + 1])} end
  end
  table.sort(parts, function(one, other) return one[1] < other[1] end)
  for at = 1, math.min(limit, #parts) do
    local numbers = {}
    for state = WAITING, CANCELED do numbers[state] = state == PROCESSING and parts[at][2] or 0 end
    answer[at + 1] = {'', parts[at][1], numbers, '', 0}
  end
  return answer
end

if tenant == '' or kind == 'p' or kind == 'y' then return of_platform() end
local next_due = read_due()
local answer = {next_due or ''}
if due_from > 0 then
  for name in pairs(due) do answer[#answer + 1] = tally(name) end
  return answer
end
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
