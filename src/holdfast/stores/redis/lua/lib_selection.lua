-- Selection: rows in the order of their sequence, filtered by a selection. Reads only.
--
-- A selection is {tenant or nil, ids, queues, types, states, groups, tags, reasons, key,
-- created_from, created_before, failed_from, failed_before}; nil does not filter.

local ROWS_MAX = 5000 -- Rows that one call reads; the caller goes on from where it stopped.
local CHUNK = 200

function selection.of(list)
  return {
    tenant = list[1], ids = list[2], queues = set_of(list[3]), types = set_of(list[4]),
    states = set_of(list[5]), groups = set_of(list[6]), tags = list[7], reasons = set_of(list[8]),
    key = list[9], from = list[10], before = list[11], failed_from = list[12],
    failed_before = list[13],
  }
end

local function has_tags(row, tags)
  local own = set_of((values.more(row)) or {})
  for _, tag in ipairs(tags) do
    if not own[tag] then return false end
  end
  return true
end

-- Whether a job failed in the time asked for. A job that ended was updated last when it ended.
local function failed_in_time(select, row)
  if not (select.failed_from or select.failed_before) then return true end
  return row.state == FAILED
    and (not select.failed_from or row.updated >= select.failed_from)
    and (not select.failed_before or row.updated < select.failed_before)
end

local function selects(select, row)
  return (not select.queues or select.queues[row.queue])
    and (not select.types or select.types[row.type])
    and (not select.groups or (row.group and select.groups[row.group]))
    and (not select.reasons or select.reasons[row.reason])
    and (not select.key or row.key == select.key)
    and (not select.from or row.created >= select.from)
    and (not select.before or row.created < select.before)
    and failed_in_time(select, row)
    and (not select.tags or has_tags(row, select.tags))
    and (not select.states or select.states[rows.seen(row)])
end

local function tenants()
  local found = call('ZRANGE', key('scopes:t'), 0, -1)
  for at, part in ipairs(found) do found[at] = string.sub(part, 1, -2) end
  return found
end

-- A source gives sequences in order: `head` is the next one or nil, `pop` moves on.

-- The members of a sorted set past a cursor.
local function of_set(name, after, newest)
  local seqs, at = {}, 1
  local bound = after and '(' .. after or (newest and '+inf' or '-inf')
  local command, stop = 'ZRANGEBYSCORE', '+inf'
  if newest then command, stop = 'ZREVRANGEBYSCORE', '-inf' end
  return {
    head = function()
      if at > #seqs then
        seqs, at = call(command, name, bound, stop, 'LIMIT', '0', CHUNK), 1
        if #seqs > 0 then bound = '(' .. seqs[#seqs] end
        rows.load(seqs)
      end
      return seqs[at]
    end,
    pop = function() at = at + 1 end,
  }
end

-- A list of sequences past a cursor.
local function of_list(seqs, after, newest)
  local kept, at = {}, 1
  for _, seq in ipairs(seqs) do
    local past = not after or (newest and seq < after) or (not newest and seq > after)
    if past then kept[#kept + 1] = seq end
  end
  table.sort(kept, function(one, other)
    if newest then return one > other end
    return one < other
  end)
  rows.load(kept)
  return {head = function() return kept[at] end, pop = function() at = at + 1 end}
end

local function sift(heap, at, before)
  while true do
    local first, left, right = at, 2 * at, 2 * at + 1
    if heap[left] and before(heap[left], heap[first]) then first = left end
    if heap[right] and before(heap[right], heap[first]) then first = right end
    if first == at then return end
    heap[at], heap[first] = heap[first], heap[at]
    at = first
  end
end

-- Several sources as one.
local function merged(sources, newest)
  local heap = {}
  for _, one in ipairs(sources) do
    if one.head() then heap[#heap + 1] = one end
  end
  local function before(one, other)
    if newest then return one.head() > other.head() end
    return one.head() < other.head()
  end
  for at = math.floor(#heap / 2), 1, -1 do sift(heap, at, before) end
  return {
    head = function() return heap[1] and heap[1].head() end,
    pop = function()
      heap[1].pop()
      if not heap[1].head() then
        heap[1] = heap[#heap]
        heap[#heap] = nil
      end
      if heap[1] then sift(heap, 1, before) end
    end,
  }
end

local function by_ids(select, after, newest)
  local names, seqs = {}, {}
  for _, tenant in ipairs(select.tenant and {select.tenant} or tenants()) do
    for id in pairs(set_of(select.ids)) do names[#names + 1] = rows.name(tenant, id) end
  end
  rows.find(names)
  for _, name in ipairs(names) do
    local seq = rows.seq_of(name)
    if seq then seqs[#seqs + 1] = seq end
  end
  return of_list(seqs, after, newest)
end

local function only_failed(select)
  if select.failed_from or select.failed_before then return true end
  if not select.states or not select.states[FAILED] then return false end
  for state in pairs(select.states) do
    if state ~= FAILED then return false end
  end
  return true
end

local function source_of(select, after, newest)
  if select.ids then return by_ids(select, after, newest) end
  local kind = only_failed(select) and 'dead:' or 'of:'
  if select.tenant then return of_set(key(kind .. select.tenant), after, newest) end
  local sources = {}
  for _, tenant in ipairs(tenants()) do
    sources[#sources + 1] = of_set(key(kind .. tenant), after, newest)
  end
  return merged(sources, newest)
end

-- Calls `visit` with each selected row past a cursor, until it returns true. Returns where it
-- stopped, nil at the end.
function selection.each(select, after, newest, visit)
  local source, read, reached = source_of(select, after and wide(after), newest), 0, after
  while true do
    local seq = source.head()
    if not seq then return nil end
    if read >= ROWS_MAX then return reached end
    local row = rows.get(seq)
    if row and selects(select, row) and visit(row) then return reached end
    source.pop()
    reached, read = tonumber(seq), read + 1
  end
end
