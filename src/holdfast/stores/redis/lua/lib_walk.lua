-- Walk: rows in the order of their sequence, filtered by a selection.
--
-- A selection is {tenant or nil, ids, queues, types, states, groups, tags, reasons, key,
-- created_from, created_before, failed_from, failed_before}, each nil when it does not narrow.

local WALK_MAX = 5000 -- Rows that one call looks at; the caller goes on from where it stopped.
local CHUNK = 200

local function selection(list)
  return {
    tenant = list[1], ids = list[2], id_set = set_of(list[2]), queues = set_of(list[3]),
    types = set_of(list[4]), states = set_of(list[5]), groups = set_of(list[6]), tags = list[7],
    reasons = set_of(list[8]), key = list[9], from = list[10], before = list[11],
    failed_from = list[12], failed_before = list[13],
  }
end
walk.selection = selection

local function tagged(row, tags)
  local own = set_of((rows.more(row)) or {})
  for _, tag in ipairs(tags) do
    if not own[tag] then return false end
  end
  return true
end

-- Whether a job failed for good in the time asked for. It was updated last when it ended.
local function failed(select, row)
  if not (select.failed_from or select.failed_before) then return true end
  return row.state == FAILED
    and (not select.failed_from or row.updated >= select.failed_from)
    and (not select.failed_before or row.updated < select.failed_before)
end

function walk.selects(select, row)
  return (not select.tenant or row.tenant == select.tenant)
    and (not select.id_set or select.id_set[row.id])
    and (not select.queues or select.queues[row.queue])
    and (not select.types or select.types[row.type])
    and (not select.groups or (row.group and select.groups[row.group]))
    and (not select.reasons or select.reasons[row.reason])
    and (not select.key or row.key == select.key)
    and (not select.from or row.created >= select.from)
    and (not select.before or row.created < select.before)
    and failed(select, row)
    and (not select.tags or tagged(row, select.tags))
    and (not select.states or select.states[rows.seen(row)])
end

local function tenants()
  local found = call('ZRANGE', key('scopes:t'), 0, -1)
  for index, part in ipairs(found) do found[index] = string.sub(part, 1, -2) end
  return found
end

-- Whether jobs of a pack may be among the selected.
local function may_hold(select, pack)
  return (not select.queues or select.queues[pack.queue])
    and (not select.types or select.types[pack.type])
    and not (select.groups or select.reasons or select.key or select.tags)
    and not (select.failed_from or select.failed_before)
    and (not select.states or select.states[ENQUEUED] or select.states[PROCESSING])
end

-- The sequences of the jobs in a place that are past a cursor, in order.
local function jobs_at(member, select, after, newest)
  if not packs.is(member) then return {member} end
  local pack, list, found = packs.get(string.sub(member, 1, -2)), {}, {}
  if pack and may_hold(select, pack) then
    for index, row in ipairs(packs.rows(pack)) do list[index] = row.seq end
  elseif pack then
    -- Where the walk is when it has passed this pack, for it may stop here.
    list = {newest and pack.seq or packs.last(pack)}
  end
  for index = 1, #list do
    local seq = list[newest and #list - index + 1 or index]
    if not after or (newest and seq < after) or (not newest and seq > after) then
      found[#found + 1] = seq
    end
  end
  return found
end

-- A source of sequences: the next one without taking it, or nil.
local function source(name, select, after, newest)
  local places, place = {}, 1
  local seqs, at = {}, 1
  local bound = after and '(' .. after or (newest and '+inf' or '-inf')
  if after and not newest then
    -- The cursor may be in the midst of a pack.
    local before = call('ZREVRANGEBYSCORE', name, after, '-inf', 'LIMIT', '0', '1')[1]
    if before and packs.is(before) then seqs = jobs_at(before, select, after, newest) end
  end

  -- The places that follow, each with the sequence that it is ranked by.
  local function look()
    local command, stop = 'ZRANGEBYSCORE', '+inf'
    if newest then command, stop = 'ZREVRANGEBYSCORE', '-inf' end
    local found = call(command, name, bound, stop, 'WITHSCORES', 'LIMIT', '0', CHUNK)
    local plain_ones = {}
    places, place = {}, 1
    for index = 1, #found, 2 do
      places[#places + 1] = found[index]
      if not packs.is(found[index]) then plain_ones[#plain_ones + 1] = found[index] end
      bound = '(' .. found[index + 1]
    end
    rows.load(plain_ones)
  end

  local self = {}
  function self.head()
    while at > #seqs do
      if place > #places then look() end
      if not places[place] then return nil end
      seqs, at = jobs_at(places[place], select, after, newest), 1
      place = place + 1
    end
    return seqs[at]
  end
  function self.pop() at = at + 1 end
  return self
end

-- Sequences that are known already.
local function listed(seqs, after, newest)
  local kept = {}
  for _, seq in ipairs(seqs) do
    local past = not after or (newest and seq < after) or (not newest and seq > after)
    if past then kept[#kept + 1] = seq end
  end
  table.sort(kept, function(one, other)
    if newest then return one > other end
    return one < other
  end)
  local at = 1
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

-- Several sources as one, in order.
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
    for id in pairs(select.id_set) do names[#names + 1] = rows.name(tenant, id) end
  end
  rows.find(names)
  for _, name in ipairs(names) do
    local seq = rows.seq_of(name)
    if seq then seqs[#seqs + 1] = seq end
  end
  rows.load(seqs)
  return listed(seqs, after, newest)
end

local function only_failed(select)
  if select.failed_from or select.failed_before then return true end
  if not select.states or not select.states[FAILED] then return false end
  for state in pairs(select.states) do
    if state ~= FAILED then return false end
  end
  return true
end

local function from(select, after, newest)
  if select.ids then return by_ids(select, after, newest) end
  local kind = only_failed(select) and 'dead:' or 'of:'
  if select.tenant then return source(key(kind .. select.tenant), select, after, newest) end
  local sources = {}
  for _, tenant in ipairs(tenants()) do
    sources[#sources + 1] = source(key(kind .. tenant), select, after, newest)
  end
  return merged(sources, newest)
end

-- Gives `visit` each selected row past a cursor, until it returns true. Returns where it stopped, or
-- nil at the end.
function walk.each(select, after, newest, visit)
  local sequences, looked = from(select, after and wide(after), newest), 0
  local reached = after
  while true do
    local seq = sequences.head()
    if not seq then return nil end
    if looked >= WALK_MAX then return reached end
    local row = rows.get(seq)
    if row and walk.selects(select, row) and visit(row) then return reached end
    sequences.pop()
    reached, looked = tonumber(seq), looked + 1
  end
end
