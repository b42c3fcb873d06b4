-- enqueue: {options, positions or nil, most queues, most groups, whole, step or nil}; ARGV[3] and on
-- are all names, then all fixed parts of rows, then all bodies -> an answer for each job, then the
-- instant from which the sequences are counted. With a step of a source (lib_shadow) -> {its word, a
-- number, the answers, the instant}: 'done', or why neither it nor any job was written.
--
-- The options of a job are its priority if it is ready at once, else {priority, delay, run_at or
-- nil, ttl or nil, parents or nil, parts of its edges, true if they are in the fixed part, or nil
-- (lib_edges), whether it ends with its parents}. An answer is 1 (created), {0, id of the existing
-- job}, {2, type, queue} (the id belongs to another job), {3, what, has, most} (the tenant's cap is
-- reached), {4, what} (too many queues or groups) or 5 (another job of a whole call was not created).
--
-- The script reads names, counts and tails for the whole batch and decides job by job. It writes
-- nothing before all is decided, because Redis cannot take back what a script wrote; then it writes
-- the batch with one command for each key. It uses few libraries: loading them costs more than one
-- job.

local batch, positions, most_queues, most_groups, is_whole, step = ARGS[1], ARGS[2], ARGS[3],
  ARGS[4], ARGS[5], ARGS[6]
local size = #batch
local step_texts = 3 * size + 3 -- Where the texts of the step begin.
if step then
  local word, number = shadow.refusal(step, step_texts)
  if word then return {word, whole(number), {}, whole(NOW)} end
end

-- -- counts and lines of the batch ----------------------------------------------------------------
-- Tables are made with all their fields: one that grows is copied each time it doubles.

local records, groups_of_batch, owners, lines_of_batch = {nil, nil}, {}, {}, {}

-- Adds two values to a list, which is made if there is none.
local function add(list, one, other)
  if not list then return {one, other} end
  local to = #list
  list[to + 1], list[to + 2] = one, other
  return list
end

-- What a scope has, as text, false if it is new; and the jobs and bytes that this call adds.
local function new_record(kind, tenant, part)
  local record = {scope = kind .. '\0' .. tenant .. '\0' .. part, kind = kind, tenant = tenant,
    text = false, admitted = false, enqueued = 0, scheduled = 0, waiting = 0, bytes = 0}
  records[#records + 1] = record
  return record
end

local function line_of(tenant, queue)
  local owner = owners[tenant]
  if not owner then
    owner = {tenant = tenant, record = new_record('t', tenant, ''), listed = nil, lines = {}}
    owners[tenant] = owner
  end
  local line = owner.lines[queue]
  if not line then
    line = {queue = queue, owner = owner, record = new_record('q', tenant, queue), ready = nil,
      position = false}
    owner.lines[queue] = line
    lines_of_batch[#lines_of_batch + 1] = line
  end
  return line
end

local function read_counts()
  local scopes = {nil, nil}
  for at = 1, #records do scopes[at] = records[at].scope end
  local found = base.fetch('HMGET', key('counts'), scopes)
  for at = 1, #records do records[at].text = found[at] end
end

local function save_counts()
  local written = {nil, nil, nil, nil}
  for at = 1, #records do
    local record = records[at]
    if record.enqueued + record.scheduled + record.waiting > 0 then
      local waiting, scheduled, enqueued, processing, retrying, completed, failed, canceled, bytes =
        struct.unpack(COUNTS_FORMAT, record.text or NO_COUNTS)
      add(written, record.scope, struct.pack(COUNTS_FORMAT, waiting + record.waiting,
        scheduled + record.scheduled,
        enqueued + record.enqueued, processing, retrying, completed, failed, canceled,
        bytes + record.bytes))
      if not record.text then zput(key('scopes:' .. record.kind), string.sub(record.scope, 3), 0) end
    end
  end
  base.send('HSET', key('counts'), written)
end

-- -- new jobs -------------------------------------------------------------------------------------

local new_rows, new_bodies, new_names, written = {nil, nil}, {nil, nil}, {nil, nil}, 0
local new_parents, new_edges = {}, {}

-- Adds the index entries of a new job. Returns the flags of its row.
local function index_new(job, state, priority, run_at, expires)
  local seq, line, flags = job.seq, job.line, 0
  local late = expires > 0 and expires <= NOW
  if job.group then zput(key('order:' .. job.tenant .. '\0' .. job.group), seq, seq) end
  if expires > 0 then zput(key(late and 'late' or 'ttl'), seq, expires) end
  if state == WAITING then return 0 end
  if state == SCHEDULED then
    zput(key('due'), seq, run_at)
    base.wake(job.tenant .. '\0' .. job.queue) -- A sleeper may have to wake earlier now.
    return 0
  end
  if late then
    flags = LATE
  elseif job.group and limits.limits_group(job.tenant, job.group, job.queue) then
    job.flags, job.priority = 0, priority
    groups.wait(job)
    flags = job.flags
  else
    line.ready = add(line.ready, priority == 0 and '0' or whole(-priority), seq)
  end
  if flags > 0 or run_at ~= NOW then
    flags = flags + AGED
    zput(key('ages:' .. job.tenant .. '\0' .. job.queue), seq, run_at)
  end
  return flags
end

local function count_new(record, state, bytes)
  local name = state == SCHEDULED and 'scheduled' or state == WAITING and 'waiting' or 'enqueued'
  record[name], record.bytes = record[name] + 1, record.bytes + bytes
end

-- The priority of a new job, when it runs and expires, and its state.
local function read_options(options)
  if type(options) ~= 'table' then return options, NOW, 0, ENQUEUED end
  local run_at, parents = options[3] or NOW + options[2], options[5] or 0
  local state = parents > 0 and WAITING or run_at > NOW and SCHEDULED or ENQUEUED
  return options[1], run_at, options[4] and NOW + options[4] or 0, state
end

local function insert(job, options, fixed, body, previous)
  local priority, run_at, expires, state = read_options(options)
  local line, seq = job.line, wide(base.tick('seq'))
  job.seq = seq
  line.position = line.position or base.position
  local flags, more = index_new(job, state, priority, run_at, expires), 0
  if options ~= priority then
    more = edges.new_flags(job, options, new_parents, new_edges) / 256
  end
  local last = EVENTS and events.add('enqueued', job.tenant, job.id, job.queue, job.type, 0, 0,
    run_at > NOW and run_at, nil, previous) or 0
  if previous > 0 then events.drop_tail(job.name, previous) end
  local head = struct.pack(ROW_HEAD, state, flags, 0, 0, 0, 0, more, 0, priority, NOW, NOW,
    run_at, expires, 0, last, 0, '', 0, '')
  new_rows[written + 1], new_rows[written + 2] = seq, head .. fixed
  new_bodies[written + 1], new_bodies[written + 2] = seq, body
  new_names[written + 1], new_names[written + 2] = job.name, seq
  written = written + 2
  line.owner.listed = add(line.owner.listed, seq, seq)
  if job.key then keys.take(job) end
end

-- -- one job --------------------------------------------------------------------------------------

local in_batch = {} -- Jobs that this call created, by name.

-- Decides about a job after those before it. If it can be created, it is counted.
local function decide(job, options, known_seq)
  local earlier = in_batch[job.name] or known_seq and rows.get(known_seq)
  if earlier then
    if earlier.type ~= job.type or earlier.queue ~= job.queue then
      return {2, earlier.type, earlier.queue}
    end
    return {0, earlier.id}
  end
  local holder = job.key and keys.holder(job, in_batch)
  if holder then return {0, holder} end
  if not job.line.record.text or job.group or has_settings(job.tenant) then
    local refusal = admission.refusal(job, most_queues, most_groups)
    if refusal then return refusal end
  end
  local _, _, _, state = read_options(options)
  count_new(job.line.record, state, 0)
  count_new(job.line.owner.record, state, job.size)
  if job.group then count_new(job.of_group, state, 0) end
  if job.key then keys.hold(job) end
  in_batch[job.name] = job
  return 1
end

local function read_job(name, fixed)
  local _, _, _, key_us, bytes, tenant, id, queue, its_type, group, job_key =
    struct.unpack(ROW_FIXED, fixed)
  local job = {name = name, tenant = tenant, id = id, queue = queue, type = its_type, size = bytes,
    line = line_of(tenant, queue), seq = false}
  if group ~= '' then
    local scope = tenant .. '\0' .. group
    job.group, job.of_group = group, groups_of_batch[scope] or new_record('g', tenant, group)
    groups_of_batch[scope] = job.of_group
  end
  if job_key ~= '' then job.key, job.key_us, job.state = job_key, key_us, ENQUEUED end
  return job
end

local function write()
  base.send('HSET', key('rows'), new_rows)
  base.send('HSET', key('bodies'), new_bodies)
  base.send('HSET', key('names'), new_names)
  base.send('HSET', key('parents'), new_parents)
  base.send('HSET', key('edges'), new_edges)
  for tenant, owner in pairs(owners) do base.send('ZADD', key('of:' .. tenant), owner.listed) end
  for at = 1, #lines_of_batch do
    local line = lines_of_batch[at]
    if line.ready then
      base.position = line.position
      local pushed = lines.touch(line.owner.tenant, line.queue)
      pushed.has_jobs = true
      base.send('ZADD', pushed.key, line.ready)
    end
  end
  save_counts()
end

local names, jobs, answers, created = {unpack(ARGV, 3, size + 2)}, {nil}, {nil, nil}, 0
for at = 1, size do jobs[at] = read_job(names[at], ARGV[size + at + 2]) end
local seqs = base.fetch('HMGET', key('names'), names)
read_counts()
for at = 1, size do
  answers[at] = decide(jobs[at], batch[at], seqs[at])
  if answers[at] == 1 then created = created + 1 end
end
if is_whole and created < size then
  for at = 1, size do answers[at] = answers[at] == 1 and 5 or answers[at] end
  created = 0
end
if step then
  for at = 1, size do
    local answer = answers[at]
    if answer ~= 1 and answer[1] ~= 0 then return {'jobs', '0', answers, whole(NOW)} end
  end
  shadow.apply(step, step_texts)
end
if created > 0 or step then
  local tails = EVENTS and events.tails(names)
  for at = 1, size do
    base.position = positions and positions[at] or 0
    if answers[at] == 1 then
      insert(jobs[at], batch[at], ARGV[size + at + 2], ARGV[2 * size + at + 2],
        tails and tails[at] or 0)
    end
  end
  write()
  base.finish()
end
if step then return {'done', '0', answers, whole(NOW)} end
answers[size + 1] = whole(BASE >= 0 and BASE or SERVER_NOW)
return answers
