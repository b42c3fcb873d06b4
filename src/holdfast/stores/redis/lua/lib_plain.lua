-- The plain path: jobs without a group, a key, a time to live or anything kept beside their row, of
-- tenants that have set nothing. Nearly all are. What is done is the same as elsewhere, without a
-- table for each: their writes are gathered as the values of a few commands. Whatever is not plain
-- is left to the general path, which settles these first where it reads what they write.

local found, order = {}, {} -- Lines that were touched, by name and in order.
local line                  -- The last of them: jobs of a batch are mostly of one line.

-- What was done in a line: numbers and bytes of jobs, and values for its own keys.
local function at(tenant, queue)
  if line and line.tenant == tenant and line.queue == queue then return line end
  local name = tenant .. '\0' .. queue
  line = found[name]
  if not line then
    line = {tenant = tenant, queue = queue, added = {}, ready = {}, dropped = {}, leased = 0,
      new = 0, new_bytes = 0, kept = 0, kept_bytes = 0, gone = 0, gone_bytes = 0}
    found[name] = line
    order[#order + 1] = line
  end
  return line
end

local new_rows, new_bodies, new_names, inserted = {}, {}, {}, 0
local rewritten, written = {}, 0
local held, spent, let_go, let_go_spent, done = {}, {}, {}, {}, {}
local gone, gone_names, tails, removed = {}, {}, {}, 0

local function rewrite(seq, text)
  written = written + 2
  rewritten[written - 1], rewritten[written] = seq, text
end

local function rank(list, score, seq)
  local to = #list
  list[to + 1], list[to + 2] = score, seq
end

local function settle_line(one)
  local of = key('of:' .. one.tenant)
  core.each_part('ZADD', of, one.added)
  core.each_part('ZADD', key('line:' .. one.tenant .. '\0' .. one.queue), one.ready)
  core.each_part('ZREM', of, one.dropped)
  counts.add(one.tenant, one.queue, nil, ENQUEUED, one.new, one.new_bytes)
  counts.add(one.tenant, one.queue, ENQUEUED, PROCESSING, one.leased, 0)
  counts.add(one.tenant, one.queue, PROCESSING, COMPLETED, one.kept, one.kept_bytes)
  counts.add(one.tenant, one.queue, PROCESSING, nil, one.gone, one.gone_bytes)
end

-- Writes all that was gathered. To be called before it is read.
function plain.settle()
  if not line then return end
  core.each_part('HSET', ROWS, new_rows)
  core.each_part('HSET', BODIES, new_bodies)
  core.each_part('HSET', NAMES, new_names)
  core.each_part('HSET', ROWS, rewritten)
  core.each_part('ZADD', HELD, held)
  core.each_part('ZADD', SPENT, spent)
  core.each_part('ZREM', HELD, let_go)
  core.each_part('ZREM', SPENT, let_go_spent)
  core.each_part('ZADD', DONE, done)
  core.each_part('HDEL', ROWS, gone)
  core.each_part('HDEL', BODIES, gone)
  core.each_part('HDEL', NAMES, gone_names)
  core.each_part('ZADD', TAILS, tails)
  for _, one in ipairs(order) do settle_line(one) end
  found, order, line = {}, {}, nil
  new_rows, new_bodies, new_names, inserted = {}, {}, {}, 0
  rewritten, written = {}, 0
  held, spent, let_go, let_go_spent, done = {}, {}, {}, {}, {}
  gone, gone_names, tails, removed = {}, {}, {}, 0
end

local SHARED = '>BBBI4I4I4I4dddddd' -- All of a row's head that a batch of new jobs has in common.
local heads_of, scores = {}, {}     -- It, and the rank in a line, by priority.

-- Keeps a new job that is ready at once. Returns false when it is not plain.
function plain.insert(name, fixed, body, priority, previous, most_queues)
  local _, _, _, _, size, tenant, id, queue, type, group, job_key =
    struct.unpack('>' .. FIXED, fixed)
  if group ~= '' or job_key ~= '' or ruled(tenant)
    or not counts.admit('q', tenant, queue, most_queues)
  then
    return false
  end
  if not scores[priority] then
    scores[priority] = whole(-priority)
    heads_of[priority] =
      struct.pack(SHARED, ENQUEUED, 0, 0, 0, 0, 0, 0, priority, NOW, NOW, NOW, 0, 0)
  end
  local seq, one = wide(core.tick('seq')), at(tenant, queue)
  local last = log.fact('enqueued', tenant, id, queue, type, 0, 0, nil, nil, previous)
  inserted = inserted + 1
  local to = 2 * inserted
  new_rows[to - 1] = seq
  new_rows[to] = heads_of[priority] .. struct.pack('>dHH', last, 0, 0) .. fixed
  new_bodies[to - 1], new_bodies[to] = seq, body
  new_names[to - 1], new_names[to] = name, seq
  if one.new == 0 then lines.touch(tenant, queue) end
  local number = one.new + 1
  one.new, one.new_bytes = number, one.new_bytes + size
  one.added[2 * number - 1], one.added[2 * number] = seq, seq
  one.ready[2 * number - 1], one.ready[2 * number] = scores[priority], seq
  rows.named_now(name, seq)
  log.untail(name, previous)
  return true
end

-- Leases a ready job. Returns the row, or nil when it is not plain.
function plain.lease(seq, text, claim)
  local new, more, tenant, queue = leased(text, claim)
  if not new then return nil end
  rewrite(seq, new)
  rank(more and held or spent, claim.till, seq)
  local one = at(tenant, queue)
  one.leased = one.leased + 1
  return new
end

-- Keeps a job that a claim leases out of its pack.
function plain.adopt(row)
  local seq, one, to = row.seq, at(row.tenant, row.queue), 2 * inserted + 2
  inserted = inserted + 1
  new_rows[to - 1], new_rows[to] = seq, rows.pack(row)
  new_bodies[to - 1], new_bodies[to] = seq, row.body
  new_names[to - 1], new_names[to] = rows.name_of(row), seq
  rank(one.added, seq, seq)
  rank(row.max_attempts > 1 and held or spent, whole(row.lease), seq)
  one.leased = one.leased + 1
end

-- Completes a held job. Returns false when it is not plain, or its lease is not this one.
function plain.complete(seq, text, its_tenant, its_id, its_nonce, result)
  local state, flags, _, attempt, fence, lapses, misses, priority, created, _, run_at, expires,
    lease, last, nonce, worker, max_attempts, keep, _, _, size, tenant, id, queue, type, group,
    job_key, from = unpacked(text)
  if state ~= PROCESSING or flags ~= 0 or expires > 0 or group ~= '' or job_key ~= ''
    or from <= #text or lease <= NOW or tenant ~= its_tenant or id ~= its_id or nonce ~= its_nonce
    or nonce == '' or ruled(tenant)
  then
    return false
  end
  last = log.fact('completed', tenant, id, queue, type, attempt, fence, nil, nil, last)
  core.over(tenant, id)
  local one = at(tenant, queue)
  local out = attempt < max_attempts and let_go or let_go_spent
  out[#out + 1] = seq
  if keep <= 0 then
    local name = rows.name(tenant, id)
    removed = removed + 1
    gone[removed], gone_names[removed] = seq, name
    if log.tailed(last) then rank(tails, whole(last), name) end
    one.gone, one.gone_bytes = one.gone + 1, one.gone_bytes + size
    one.dropped[one.gone] = seq
    return true
  end
  if result then
    flags = RESULT
    hput(key('results'), seq, result)
  end
  rank(done, whole(NOW + keep), seq)
  local head = struct.pack(HEAD, COMPLETED, flags, 0, attempt, fence, lapses, misses, priority,
    created, NOW, run_at, 0, lease, last)
  rewrite(seq, with_head(text, nonce, worker, head, struct.pack('>HHc0', 0, #worker, worker)))
  one.kept, one.kept_bytes = one.kept + 1, one.kept_bytes + size
  return true
end
