-- The plain path: jobs without a group, a key, a time to live or anything kept beside their row, of
-- tenants that have set nothing. Nearly all are. What is done is the same as elsewhere, without a
-- table for each; whatever is not plain is left to the general path.

local moved = {} -- {tenant, queue, from, to, number, bytes} of each line and move, counted at the end.

local function count(tenant, queue, from, to, bytes)
  local name = from .. tenant .. '\0' .. queue
  local sum = moved[name]
  if not sum then
    sum = {tenant, queue, from, to, 0, 0}
    moved[name] = sum
  end
  sum[5], sum[6] = sum[5] + 1, sum[6] + bytes
end

-- Adds what was moved to the counts. To be called before they are asked for.
function plain.settle()
  for _, sum in pairs(moved) do
    counts.add(sum[1], sum[2], sum[3], sum[4], sum[5], sum[6])
  end
  moved = {}
end

-- Leases a ready job. Returns what is told of it, or nil when it is not plain.
function plain.lease(seq, text, claim)
  local _, flags, reason, attempt, fence, lapses, misses, priority, created, _, run_at, expires, _,
    last, _, _, max_attempts, keep, keep_failed, key_us, size, tenant, id, queue, type, group,
    job_key, at = struct.unpack(FORMAT, text)
  if flags ~= 0 or expires > 0 or group ~= '' or at <= #text then return nil end
  attempt, fence = attempt + 1, fence + 1
  local till = NOW + claim.lease_us
  last = log.fact('leased', tenant, id, queue, type, attempt, fence, till, claim.worker, last)
  local new = struct.pack(FORMAT, PROCESSING, 0, reason, attempt, fence, lapses, misses, priority,
    created, NOW, run_at, 0, till, last, #claim.nonce, claim.nonce, #claim.worker, claim.worker,
    max_attempts, keep, keep_failed, key_us, size, #tenant, tenant, #id, id, #queue, queue, #type,
    type, 0, '', #job_key, job_key)
  hput(ROWS, seq, new)
  zput(attempt >= max_attempts and SPENT or HELD, seq, till)
  count(tenant, queue, ENQUEUED, PROCESSING, 0)
  return {seq = seq, text = new, flags = 0}
end

-- Completes a held job. Returns false when it is not plain, or its lease is not this one.
function plain.complete(seq, text, item)
  local state, flags, _, attempt, fence, lapses, misses, priority, created, _, run_at, expires,
    lease, last, nonce, worker, max_attempts, keep, keep_failed, key_us, size, tenant, id, queue,
    type, group, job_key, at = struct.unpack(FORMAT, text)
  if state ~= PROCESSING or flags ~= 0 or expires > 0 or group ~= '' or job_key ~= ''
    or at <= #text or keep <= 0 or lease <= NOW or tenant ~= item[1] or id ~= item[2]
    or nonce == '' or nonce .. '.' .. whole(tonumber(seq)) ~= item[4] or gates.ruled(tenant)
  then
    return false
  end
  last = log.fact('completed', tenant, id, queue, type, attempt, fence, nil, nil, last)
  if item[13] then
    flags = RESULT
    hput(key('results'), seq, item[13])
  end
  hput(ROWS, seq, struct.pack(FORMAT, COMPLETED, flags, 0, attempt, fence, lapses, misses, priority,
    created, NOW, run_at, 0, lease, last, 0, '', #worker, worker, max_attempts, keep, keep_failed,
    key_us, size, #tenant, tenant, #id, id, #queue, queue, #type, type, 0, '', 0, ''))
  zdrop(attempt >= max_attempts and SPENT or HELD, seq)
  zput(DONE, seq, NOW + keep)
  count(tenant, queue, PROCESSING, COMPLETED, size)
  core.over(tenant, id)
  return true
end
