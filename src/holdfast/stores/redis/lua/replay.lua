-- replay: {{{sequence, new id}, ...}, by or nil} -> for each 1 (done) or 0 (its state, or the cap
-- of its tenant, does not allow it).

base.insist()
base.by = ARGS[2]

local function over_cap(tenant, size)
  local settings, record = limits.of('t', tenant, ''), counts.of('t', tenant, '')
  return (settings.max_queued and counts.alive(record) + 1 > settings.max_queued)
    or (settings.max_bytes and record[BYTES] + size > settings.max_bytes)
end

local function copy_of(origin, id)
  local row = rows.fresh(rows.name(origin.tenant, id), values.copied(origin, id))
  row.priority = origin.priority
  if origin.expires > 0 then row.expires = NOW + origin.expires - origin.created end
  return row
end

local function replay(seq, id)
  local origin = rows.get(seq)
  if not origin or origin.state < ENDED or rows.has(origin, REPLAYED) then return 0 end
  local row = copy_of(origin, id)
  if not rows.named(row.name) then
    if over_cap(row.tenant, row.size) then return 0 end
    row.last = events.tails({row.name})[1]
    index.insert(row, call('HGET', key('bodies'), seq))
  end
  values.keep(origin, REPLAYED, id)
  events.note('replayed', origin, nil, id)
  return 1
end

local answers = {}
for at, item in ipairs(ARGS[1]) do answers[at] = replay(item[1], item[2]) end
base.finish()
return answers
