-- enqueue: {jobs, places or nil} -> for each job 1 (kept), or {0, id of an earlier one}, or
-- {2, type, queue} (the id is another job's), or {3, what, has, most} (its tenant is full).
-- The last answer is the instant that the sequences count from.
-- A job is {fixed, body, priority, delay, run_at or nil, ttl or nil}.

local batch, places = ARGS[1], ARGS[2]

-- Why the tenant may not have a job of this size waiting too; nil when it may.
local function full(tenant, size)
  if not gates.ruled(tenant) then return nil end
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

local function insert(row, body)
  row.seq = wide(core.tick('seq'))
  row.last = log.untail(row.name)
  rows.add(row, body)
  if row.group then groups.joins(row) end
  jobs.enter(row)
  if row.key then jobs.take_key(row) end
  log.note('enqueued', row, row.run_at > NOW and row.run_at or nil)
end

local function enqueue(job, row)
  local earlier = rows.named(row.name)
  if earlier then
    if earlier.type ~= row.type or earlier.queue ~= row.queue then
      return {2, earlier.type, earlier.queue}
    end
    return {0, earlier.id}
  end
  row.priority, row.run_at = job[3], job[5] or NOW + job[4]
  if row.run_at > NOW then row.state = SCHEDULED end
  if job[6] then row.expires = NOW + job[6] end
  local holder = row.key and jobs.key_holder(row)
  if holder then return {0, holder} end
  local refusal = full(row.tenant, row.size)
  if refusal then return refusal end
  insert(row, job[2])
  return 1
end

local fresh, names = {}, {}
for index, job in ipairs(batch) do
  fresh[index] = rows.fresh(job[1])
  names[index] = rows.name_of(fresh[index])
end
rows.find(names)
local answers = {}
for index, job in ipairs(batch) do
  core.place = places and places[index] or 0
  answers[index] = enqueue(job, fresh[index])
end
core.finish()
answers[#answers + 1] = whole(CONTROL[5] or SERVER_NOW)
return answers
