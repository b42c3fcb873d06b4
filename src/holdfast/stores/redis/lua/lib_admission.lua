-- Admission: whether a new job may be added. Enqueue asks if the job is the first of its queue or
-- group, or if its tenant has settings.

-- Whether a tenant may have jobs in a queue or group: always, if it has or had some (until they are
-- pruned); else while it has fewer than `most` of them.
local scopes_of = {}
local function admits(record, most)
  if record.text or record.admitted then return true end
  local name = record.kind .. record.tenant
  local number = scopes_of[name] or call('ZLEXCOUNT', key('scopes:' .. record.kind),
    '[' .. record.tenant .. '\0', '(' .. record.tenant .. '\1')
  record.admitted = number < most
  scopes_of[name] = record.admitted and number + 1 or number
  return record.admitted
end

-- Why a job is refused, as enqueue answers it; nil if it is not.
function admission.refusal(job, most_queues, most_groups)
  local line = job.line
  if not admits(line.record, most_queues) then return {4, 'queues'} end
  if job.group and not admits(job.of_group, most_groups) then return {4, 'groups'} end
  if not has_settings(job.tenant) then return nil end
  local settings, record = limits.of('t', job.tenant, ''), line.owner.record
  local has = {struct.unpack(COUNTS_FORMAT, record.text or NO_COUNTS)}
  local alive = has[1] + has[2] + has[3] + has[4] + has[5] + record.enqueued + record.scheduled
    + record.waiting
  local bytes = has[BYTES] + record.bytes
  if settings.max_queued and alive + 1 > settings.max_queued then
    return {3, 'jobs', whole(alive), whole(settings.max_queued)}
  end
  if settings.max_bytes and bytes + job.size > settings.max_bytes then
    return {3, 'bytes', whole(bytes), whole(settings.max_bytes)}
  end
end
