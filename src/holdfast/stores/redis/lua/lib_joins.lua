-- Joins: what the end of a job does to the jobs that await it.
--
--   releasing          zset: tenants with jobs whose edges are not all followed, by turn
--   releasing:<tenant> list of these jobs: state (0: deleted), edges followed, seq, id
--
-- The call that ends jobs follows up to RELEASE_MAX of their edges at its end, tenants in turn, those
-- of jobs that end because of a parent included. The rest is left for later claims, as many in each.

local SHARE = 50 -- Edges that the jobs of one tenant follow in its turn.
local PASSES_MAX = 300 -- Of one call: each is a few commands, and follows one link of a chain.
local IN_ROW_MAX = 100 -- More edges than the row of a job can have.
local RELEASING = key('releasing')
local PARENT, PARENT_SIZE = '>BI4c16', 21

local turns_of, by_tenant = {}, {} -- Tenants with edges to follow, in turn.
local changed = false -- Whether what is left for later calls may have changed.

local function releasing_key(tenant) return key('releasing:' .. tenant) end

-- -- the turns of tenants -------------------------------------------------------------------------

local function add(parent)
  local turn = by_tenant[parent.tenant]
  if not turn then
    turn = {tenant = parent.tenant, first = 1, stored = 0}
    by_tenant[parent.tenant] = turn
  end
  if turn.first > #turn then turns_of[#turns_of + 1] = turn end
  turn[#turn + 1] = parent
end

-- Notes that a job has ended, or is deleted before its end: then its state is 0.
function joins.ended(row, state)
  local in_row = rows.has(row, ROW_EDGES)
  if in_row then edges.know(row) end
  add({tenant = row.tenant, seq = row.seq, id = row.id, state = state, followed = 0,
    in_row = in_row})
end

-- Reads the first parts of the jobs that come next.
local function prefetch(turns, share)
  local fields = {}
  for _, turn in ipairs(turns) do
    for at = turn.first, math.min(#turn, turn.first + share - 1) do
      local parent = turn[at]
      if not parent.in_row then
        fields[#fields + 1] = edges.field(parent.seq, math.floor(parent.followed / EDGES_PART))
      end
    end
  end
  edges.load(fields)
end

-- Adds up to `most` edges of the jobs of a tenant to a list: the job that has ended, what a failure
-- does, the name of the target, the join; and so on. Returns how many values the list has now.
local function take_of(turn, most, into, size_of_list)
  local to, start, last = size_of_list, rows.start(turn.tenant), #turn
  while most > IN_ROW_MAX and turn.first <= last and turn[turn.first].in_row do
    local parent, before = turn[turn.first], to
    to = edges.add(parent, start, into, to)
    parent.followed, parent.done, turn.first = EDGES_PART, true, turn.first + 1
    most = most - (to - before) / 4
  end
  while most > 0 and turn.first <= last do
    local parent = turn[turn.first]
    local number = math.floor(parent.followed / EDGES_PART)
    local part = edges.read(parent.seq, number)
    local from, size = parent.followed - number * EDGES_PART, #part / 3
    local taken = math.max(0, math.min(most, size - from))
    for at = 3 * from + 1, 3 * (from + taken), 3 do
      into[to + 1], into[to + 2] = parent, part[at]
      into[to + 3], into[to + 4] = start .. part[at + 1], part[at + 2]
      to = to + 4
    end
    parent.followed, most = parent.followed + taken, most - taken
    if from + taken >= size then
      -- A part that cannot be read to its end counts as followed.
      parent.followed = (number + 1) * EDGES_PART
      if number + 1 >= edges.number_of_parts(parent.seq) then
        parent.done, turn.first = true, turn.first + 1
      end
    end
  end
  return to
end

-- The next edges, at most so many: a turn of each tenant.
local function take(most)
  local round, served, found, size = turns_of, {}, {}, 0
  local share = #round > 1 and SHARE or most
  turns_of = {}
  prefetch(round, share)
  for _, turn in ipairs(round) do
    local room = math.min(share, most - size / 4)
    size = take_of(turn, room, found, size)
    if turn.first <= #turn then
      local to = room > 0 and served or turns_of
      to[#to + 1] = turn
    end
  end
  for _, turn in ipairs(served) do turns_of[#turns_of + 1] = turn end
  return found, size
end

-- -- what a call leaves ---------------------------------------------------------------------------

-- Of a job whose edges are followed: they are deleted if the job is.
local function done(parent, is_stored)
  if parent.state == 0 then
    if not parent.in_row then edges.drop(parent.seq) end
    return
  end
  if not is_stored then return end
  local row = rows.get(parent.seq)
  if not row then return edges.drop(parent.seq) end
  rows.unmark(row, FOLLOWING)
  row.dirty = true
  if rows.has(row, ROW_EDGES) then edges.drop(parent.seq) end
end

local function keep(turn)
  local name, number, left = releasing_key(turn.tenant), math.min(turn.first - 1, turn.stored), {}
  if number > 0 then call('LPOP', name, number) end
  for at = turn.first, #turn do
    local parent = turn[at]
    local text = struct.pack(PARENT, parent.state, parent.followed, parent.seq) .. parent.id
    if at > turn.stored then
      left[#left + 1] = text
      if parent.in_row then edges.spill(parent.seq) end
      local row = rows.get(parent.seq)
      if row then
        rows.mark(row, FOLLOWING)
        row.dirty = true
      end
    elseif at == turn.first then
      call('LSET', name, 0, text)
    end
  end
  base.send('RPUSH', name, left)
  if turn.stored == 0 then
    call('ZADD', RELEASING, 'NX', whole(base.tick('turn')), turn.tenant) -- It may wait for its turn.
  elseif call('EXISTS', name) == 1 then
    zput(RELEASING, turn.tenant, base.tick('turn'))
  else
    zdrop(RELEASING, turn.tenant)
  end
end

local function leave()
  -- Those that had no turn come first.
  local list, listed = {}, {}
  for _, turn in ipairs(turns_of) do list[#list + 1], listed[turn] = turn, true end
  for _, turn in pairs(by_tenant) do
    if not listed[turn] then list[#list + 1] = turn end
  end
  for _, turn in ipairs(list) do
    for at = 1, turn.first - 1 do done(turn[at], at <= turn.stored) end
    if turn.stored > 0 or turn.first <= #turn then
      keep(turn)
      changed = true
    end
  end
  turns_of, by_tenant = {}, {}
  if not changed then return end
  changed = false
  zflush(RELEASING)
  local number = call('ZCARD', RELEASING)
  if number ~= heads.releasing then base.set_head('releasing', number) end
  if number > 0 then base.wake_all() end -- The next claims go on with it.
end

-- Follows the edges of the jobs that have ended.
function joins.release()
  if not next(by_tenant) and not changed then return end
  local left, passes = RELEASE_MAX, 0
  while #turns_of > 0 and left > 0 and passes < PASSES_MAX do
    local found, size = take(left)
    left, passes = left - size / 4, passes + 1
    targets.follow(found, size)
  end
  leave()
end

local function parent_of(tenant, text)
  local fine, state, followed, seq = pcall(struct.unpack, PARENT, text)
  if not fine then state, followed, seq = COMPLETED, 0, '' end -- It has no edges: it is dropped.
  local id = string.sub(text, PARENT_SIZE + 1)
  return {tenant = tenant, seq = seq, id = id, state = state, followed = followed}
end

-- Follows edges that earlier calls have left, of the next tenants. Returns whether there were any.
function joins.release_left()
  if heads.releasing == 0 then return false end
  local tenants = call('ZRANGE', RELEASING, 0, RELEASE_MAX / SHARE - 1)
  for _, tenant in ipairs(tenants) do
    local found = call('LRANGE', releasing_key(tenant), 0, math.floor(RELEASE_MAX / #tenants) - 1)
    for _, text in ipairs(found) do add(parent_of(tenant, text)) end
    if #found > 0 then by_tenant[tenant].stored = #found else zdrop(RELEASING, tenant) end
  end
  changed = true
  joins.release()
  return #tenants > 0
end
