-- enqueue: {options, places or nil, packs or nil, most queues, most groups}, and besides the
-- arguments ARGV[3] and on: all names, then all fixed parts of rows, then all bodies -> for each job
-- 1 (kept), or {0, id of an earlier one}, or {2, type, queue} (the id is another job's), or {3, what,
-- has, most} (its tenant is full), or {4, what} (its tenant has too many of these).
-- The last answer is the instant that the sequences count from.
-- The options of a job that is ready at once are its priority, of any other {priority, delay,
-- run_at or nil, ttl or nil}.
-- With packs there are no other jobs. Each is how many jobs it has; its head, ids, where the payloads
-- end, and the payloads are ARGV[3] and on. Its answer is 1 for all, or a list.

local batch, places, most_queues, most_groups = ARGS[1], ARGS[2], ARGS[4], ARGS[5]

-- Why the tenant may not have a job of this size waiting too; nil when it may.
local function full(tenant, size)
  if not ruled(tenant) then return nil end
  local rules = gates.of('t', tenant, '')
  if not rules.max_queued and not rules.max_bytes then return nil end
  local record = counts.of('t', tenant, '')
  local alive = counts.alive(record)
  if rules.max_queued and alive + 1 > rules.max_queued then
    return {3, 'jobs', whole(alive), whole(rules.max_queued)}
  end
  if rules.max_bytes and record[BYTES] + size > rules.max_bytes then
    return {3, 'bytes', whole(record[BYTES]), whole(rules.max_bytes)}
  end
end

-- Why the tenant may not have jobs in this queue and group too; nil when it may.
local function too_many(tenant, queue, group)
  if not counts.admit('q', tenant, queue, most_queues) then return {4, 'queues'} end
  if group and not counts.admit('g', tenant, group, most_groups) then return {4, 'groups'} end
end

local function insert(row, body, previous)
  row.seq = wide(core.tick('seq'))
  row.last = previous
  log.untail(row.name, previous)
  rows.add(row, body)
  if row.group then groups.joins(row) end
  jobs.enter(row)
  if row.key then jobs.take_key(row) end
  log.note('enqueued', row, row.run_at > NOW and row.run_at or nil)
end

local function enqueue(options, row, body, previous)
  local earlier = rows.named(row.name)
  if earlier then
    if earlier.type ~= row.type or earlier.queue ~= row.queue then
      return {2, earlier.type, earlier.queue}
    end
    return {0, earlier.id}
  end
  row.priority, row.run_at = options[1], options[3] or NOW + options[2]
  if row.run_at > NOW then row.state = SCHEDULED end
  if options[4] then row.expires = NOW + options[4] end
  local holder = row.key and jobs.key_holder(row)
  if holder then return {0, holder} end
  local refusal = too_many(row.tenant, row.queue, row.group) or full(row.tenant, row.size)
  if refusal then return refusal end
  insert(row, body, previous)
  return 1
end

local function enqueue_pack(number, head, ids, lengths, load)
  local pack = packs.fresh(number, head, ids, lengths, load)
  if not too_many(pack.tenant, pack.queue) and packs.insert(pack) then return 1 end
  local list, names, answers = packs.unrolled(pack), {}, {}
  for index, row in ipairs(list) do names[index] = row.name end
  rows.find(names)
  local tails = log.tails(names)
  for index, row in ipairs(list) do
    answers[index] = enqueue({row.priority, 0}, row, row.body, tails[index])
    core.place = core.place + 1
  end
  return answers
end

if ARGS[3] then
  local answers = {}
  for index, number in ipairs(ARGS[3]) do
    core.place = places and places[index] or 0
    answers[index] = enqueue_pack(number, unpack(ARGV, 4 * index - 1, 4 * index + 2))
  end
  core.finish()
  answers[#answers + 1] = whole(CONTROL[5] or SERVER_NOW)
  return answers
end

local size = #batch
local names = {unpack(ARGV, 3, size + 2)}
rows.find(names)
local tails, answers = log.tails(names), {}
for index, options in ipairs(batch) do
  core.place = places and places[index] or 0
  local name, fixed, body = names[index], ARGV[size + index + 2], ARGV[2 * size + index + 2]
  local is_plain = type(options) == 'number'
  if is_plain and not rows.seq_of(name)
    and plain.insert(name, fixed, body, options, tails[index], most_queues)
  then
    answers[index] = 1
  else
    local row = rows.fresh(name, fixed)
    answers[index] = enqueue(is_plain and {options, 0} or options, row, body, tails[index])
  end
end
core.finish()
answers[#answers + 1] = whole(CONTROL[5] or SERVER_NOW)
return answers
