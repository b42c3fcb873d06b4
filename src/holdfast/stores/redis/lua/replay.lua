-- replay: {{{seq, new id}, ...}, by or nil} -> for each 1 (done) or 0 (its state, or its tenant's cap, forbids).

core.insist()
core.by = ARGS[2]

local function full(tenant, size)
  local limits = gates.of('t', tenant, '')
  local record = counts.of('t', tenant, '')
  return (limits.max_queued and counts.alive(record) + 1 > limits.max_queued)
    or (limits.max_bytes and record[BYTES] + size > limits.max_bytes)
end

local KEPT = {'max_attempts', 'keep', 'keep_failed', 'key_us', 'size', 'tenant', 'queue', 'type',
  'group', 'priority'}

local function copy(origin, id)
  local row = {
    id = id, tail = cmsgpack.pack({(rows.more(origin)) or false, origin.id}),
    state = ENQUEUED, flags = 0, reason = 0, attempt = 0, fence = 0, lapses = 0, misses = 0,
    created = NOW, updated = NOW, run_at = NOW, expires = 0, lease = 0, nonce = '', worker = '',
  }
  for _, field in ipairs(KEPT) do row[field] = origin[field] end
  if origin.expires > 0 then row.expires = NOW + origin.expires - origin.created end
  return row
end

local function replay(seq, id)
  local origin = rows.get(seq)
  if not origin or origin.state < ENDED or has(origin, REPLAYED) then return 0 end
  local row = copy(origin, id)
  if not rows.named(rows.name_of(row)) then
    if full(row.tenant, row.size) then return 0 end
    row.seq = wide(core.tick('seq'))
    row.last = log.tails({row.name})[1]
    log.untail(row.name, row.last)
    rows.add(row, call('HGET', BODIES, seq))
    if row.group then groups.joins(row) end
    jobs.enter(row)
    log.note('enqueued', row)
  end
  rows.keep(origin, REPLAYED, id)
  log.note('replayed', origin, nil, id)
  return 1
end

local answers = {}
for index, item in ipairs(ARGS[1]) do answers[index] = replay(item[1], item[2]) end
core.finish()
return answers
