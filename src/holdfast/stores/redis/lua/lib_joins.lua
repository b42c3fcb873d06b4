-- Joins: what the end of a job does to the jobs that await it.
--
--   edges              hash: seq -> the first edges of a job; seq:1, seq:2, ... -> the further ones,
--                      EDGES_PART in each. A text starts with the number of texts (2 bytes); an edge
--                      is what a failure does (f fail, r run, s skip), target and name of the join
--   releasing          zset: tenants with jobs whose edges are not all followed, by turn
--   releasing:<tenant> list of these jobs: state (0: deleted), edges followed, seq, id
--
-- The call that ends jobs follows up to RELEASE_MAX of their edges at its end, tenants in turn, those
-- of jobs that end because of a parent included. The rest is left for later claims, as many in each.

local SHARE = 50 -- Edges that the jobs of one tenant follow in its turn.
local PASSES_MAX = 300 -- Of one call: each is a few commands, and follows one link of a chain.
local PARTS_MAX = math.ceil(EDGES_MAX / EDGES_PART)

local has = rows.has
local EDGES_OF, RELEASING = key('edges'), key('releasing')
local COUNT, PARENT, PARENT_SIZE = '>H', '>BI4c16', 21
local WORDS = {[FAILED] = 'failed', [CANCELED] = 'was canceled'}

local turns_of, by_tenant = {}, {} -- Tenants with edges to follow, in turn.
local changed = false -- Whether what is left for later calls may have changed.
local texts = {} -- Parts of edges that were read, by field.

local function releasing_key(tenant) return key('releasing:' .. tenant) end

-- -- edges ----------------------------------------------------------------------------------------

local function field_of(seq, number) return number == 0 and seq or seq .. ':' .. whole(number) end

local function load_parts(fields)
  local missing = {}
  for _, field in ipairs(fields) do
    if texts[field] == nil then missing[#missing + 1] = field end
  end
  for at, text in ipairs(base.fetch('HMGET', EDGES_OF, missing)) do texts[missing[at]] = text end
end

-- A part of the edges of a job; false if there is none.
local function part_of(seq, number)
  local field = field_of(seq, number)
  load_parts({field})
  return texts[field]
end

local function number_of_parts(seq)
  local text = part_of(seq, 0)
  return text and #text >= 2 and math.min(PARTS_MAX, (struct.unpack(COUNT, text))) or 1
end

-- The edges of a part, each {what a failure does, target, join}. What cannot be read ends it.
local function edges_in(text)
  local found, at = {}, 3
  while at <= #text do
    local fine, how, target, name, next_at = pcall(struct.unpack, '>c1Hc0Hc0', text, at)
    if not fine then break end
    found[#found + 1], at = {how, target, name}, next_at
  end
  return found
end

-- Stores the edges of a new job: the texts of its parts, with their fields.
function joins.fields(seq, parts, into)
  for at, text in ipairs(parts) do
    into[#into + 1], into[#into + 2] = field_of(seq, at - 1), text
  end
end

-- All parts of the edges of a job.
function joins.parts(row)
  local fields, found = {}, {}
  for number = 0, number_of_parts(row.seq) - 1 do fields[number + 1] = field_of(row.seq, number) end
  load_parts(fields)
  for _, field in ipairs(fields) do
    if texts[field] then found[#found + 1] = texts[field] end
  end
  return found
end

local function drop_edges(seq)
  for number = 0, number_of_parts(seq) - 1 do hput(EDGES_OF, field_of(seq, number), false) end
end

-- Deletes the edges of a deleted job, unless they are still to be followed.
function joins.drop(row)
  if row.state >= ENDED and not has(row, FOLLOWING) then drop_edges(row.seq) end
end

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
  add({tenant = row.tenant, seq = row.seq, id = row.id, state = state, followed = 0})
end

-- Reads the first parts of the jobs that come next.
local function prefetch(turns, share)
  local fields = {}
  for _, turn in ipairs(turns) do
    for at = turn.first, math.min(#turn, turn.first + share - 1) do
      local parent = turn[at]
      fields[#fields + 1] = field_of(parent.seq, math.floor(parent.followed / EDGES_PART))
    end
  end
  load_parts(fields)
end

-- Adds up to `most` edges of the jobs of a tenant.
local function take_of(turn, most, into)
  while most > 0 and turn.first <= #turn do
    local parent = turn[turn.first]
    local number = math.floor(parent.followed / EDGES_PART)
    local text = part_of(parent.seq, number)
    local edges = text and edges_in(text) or {}
    local from = parent.followed - number * EDGES_PART
    local taken = math.max(0, math.min(most, #edges - from))
    for at = from + 1, from + taken do into[#into + 1] = {parent, edges[at]} end
    parent.followed, most = parent.followed + taken, most - taken
    if from + taken >= #edges then
      -- A part that cannot be read to its end counts as followed.
      parent.followed = (number + 1) * EDGES_PART
      if number + 1 >= number_of_parts(parent.seq) then
        parent.done, turn.first = true, turn.first + 1
      end
    end
  end
end

-- The next edges, at most so many: a turn of each tenant.
local function take(most)
  local round, served, edges = turns_of, {}, {}
  local share = #round > 1 and SHARE or most
  turns_of = {}
  prefetch(round, share)
  for _, turn in ipairs(round) do
    local room = math.min(share, most - #edges)
    take_of(turn, room, edges)
    if turn.first <= #turn then
      local to = room > 0 and served or turns_of
      to[#to + 1] = turn
    end
  end
  for _, turn in ipairs(served) do turns_of[#turns_of + 1] = turn end
  return edges
end

-- -- targets --------------------------------------------------------------------------------------

-- Makes a job ready that awaits this, which has come.
function joins.ready(row, come)
  local awaits = row.state == WAITING and 'join:'
    or row.state == SCHEDULED and values.kept(row, AWAITS)
  if awaits ~= come then return end
  index.remove(row)
  if row.state == SCHEDULED then row.run_at = math.min(row.run_at, NOW) end
  values.keep(row, AWAITS, nil)
  row.state, row.updated = row.run_at > NOW and SCHEDULED or ENQUEUED, NOW
  index.add(row)
  events.note('ready', row, row.run_at > NOW and row.run_at or nil, come)
end

-- Ends a waiting job because of a parent that has not completed.
local function end_with(row, parent, how)
  local why = 'its parent ' .. parent.id .. ' ' .. (WORDS[parent.state] or 'was deleted')
  local kind, note = 'canceled', why
  index.remove(row)
  values.keep(row, ERROR, why)
  if how == 's' then
    row.state = CANCELED
  else
    row.state, row.reason = FAILED, REASON_PARENT_FAILED
    kind, note = 'failed', rules.why(row)
  end
  index.finish(row)
  events.note(kind, row, nil, note, true)
end

local function tell(parent, edge)
  local row = rows.named(rows.name(parent.tenant, edge[2]))
  if not row or row.state >= ENDED then return end
  local join = journal.join(row, edge[3])
  if not join or join.left == 0 then return end
  local failed = parent.state ~= COMPLETED
  journal.count(join, failed)
  if failed and row.state == WAITING and edge[1] ~= 'r' then
    end_with(row, parent, edge[1])
  elseif join.left == 0 then
    joins.ready(row, 'join:' .. edge[3])
  end
end

-- The targets of edges, read together.
local function targets_of(edges)
  local names, seqs = {}, {}
  for at, one in ipairs(edges) do names[at] = rows.name(one[1].tenant, one[2][2]) end
  rows.find(names)
  for _, name in ipairs(names) do seqs[#seqs + 1] = rows.seq_of(name) end
  return rows.list(seqs)
end

-- -- what a call leaves ---------------------------------------------------------------------------

-- Of a job whose edges are followed: they are deleted if the job is.
local function done(parent, is_stored)
  if parent.state == 0 then return drop_edges(parent.seq) end
  if not is_stored then return end
  local row = rows.get(parent.seq)
  if not row then return drop_edges(parent.seq) end
  rows.unmark(row, FOLLOWING)
  row.dirty = true
end

local function keep(turn)
  local name, number, left = releasing_key(turn.tenant), math.min(turn.first - 1, turn.stored), {}
  if number > 0 then call('LPOP', name, number) end
  for at = turn.first, #turn do
    local parent = turn[at]
    local text = struct.pack(PARENT, parent.state, parent.followed, parent.seq) .. parent.id
    if at > turn.stored then
      left[#left + 1] = text
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
    local edges = take(left)
    left, passes = left - #edges, passes + 1
    journal.load_parents(targets_of(edges))
    for _, one in ipairs(edges) do tell(one[1], one[2]) end
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

-- -- keeping --------------------------------------------------------------------------------------

-- Whether a job that has not ended may still read the result of this one; and how many edges were
-- looked at.
function joins.is_wanted(row)
  if has(row, FOLLOWING) then return true, 0 end
  local looked = 0
  for number = 0, number_of_parts(row.seq) - 1 do
    local text, edges = part_of(row.seq, number), {}
    for at, edge in ipairs(text and edges_in(text) or {}) do edges[at] = {row, edge} end
    looked = looked + #edges
    for _, target in ipairs(targets_of(edges)) do
      if target.state < ENDED then return true, looked end
    end
  end
  return false, looked
end

-- Reads the first edges of rows, together.
function joins.load(list)
  local fields = {}
  for _, row in ipairs(list) do
    if has(row, EDGES) then fields[#fields + 1] = row.seq end
  end
  load_parts(fields)
end
