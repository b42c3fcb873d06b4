-- prune: {limit, events_keep_us} -> {jobs, keys, events, looked}: how many of each were deleted, and
-- how many jobs past their keeping were looked at, or the limit if there are more.

base.insist()
local limit = ARGS[1]
local EDGES_LOOKED_MAX = 5000 -- One prune stops after so many edges of jobs that others may need.

-- Whether a living job may still read the result of this one: then it is looked at again later.
local function is_kept(row)
  if not rows.has(row, EDGES) then return false, 0 end
  local is_wanted, looked = edges.is_wanted(row)
  if is_wanted then zput(key('done'), row.seq, NOW + KEEP_AGAIN_US) end
  return is_wanted, looked
end

local function prune_jobs()
  local done = key('done')
  local seqs = call('ZRANGEBYSCORE', done, '-inf', whole(NOW), 'LIMIT', 0, limit)
  rows.load(seqs)
  local gone, looked = 0, 0
  for _, seq in ipairs(seqs) do
    if looked > EDGES_LOOKED_MAX then return gone, limit end
    local row = rows.get(seq)
    local is_wanted, number = false, 0
    if row then is_wanted, number = is_kept(row) end
    looked = looked + number
    if not is_wanted then
      gone = gone + 1
      if row then
        index.delete(row)
        events.set_tail(rows.name_of(row), row.last)
      else
        call('ZREM', done, seq)
      end
    end
  end
  return gone, #seqs
end

local function prune_holds()
  local past = call('ZRANGEBYSCORE', key('hold_ends'), '-inf', whole(NOW), 'LIMIT', 0, limit)
  for _, name in ipairs(past) do
    local tenant = cmsgpack.unpack(call('HGET', key('holds'), name) or '\144')[4]
    if tenant then call('ZREM', key('slots_of:' .. tenant), name) end
    call('HDEL', key('holds'), name)
    call('ZREM', key('hold_names'), name)
    call('ZREM', key('hold_ends'), name)
  end
end

-- Deletes the counts of scopes that have neither jobs nor slots, `limit` scopes of each kind at a
-- time.
local function prune_counts()
  counts.save()
  for _, kind in ipairs({'t', 'q', 'g'}) do
    local listed = key('scopes:' .. kind)
    zflush(listed)
    local start = tonumber(call('HGET', KEYS[2], 'sweep:' .. kind) or '0')
    local scopes, kept = call('ZRANGE', listed, start, start + limit - 1), 0
    for _, part in ipairs(scopes) do
      local tenant, name = string.match(part, '^([^%z]*)%z(.*)$')
      local record = counts.of(kind, tenant, name)
      local used = counts.alive(record) + record[COMPLETED] + record[FAILED] + record[CANCELED]
      if used == 0 and limits.slots(record.scope) == 0 then
        counts.forget(record)
        call('DEL', key('slots:' .. record.scope))
      else
        kept = kept + 1
      end
    end
    call('HSET', KEYS[2], 'sweep:' .. kind, #scopes < limit and 0 or start + kept)
  end
end

-- Deletes token buckets that are full: a missing bucket is full too.
local function prune_buckets()
  local found = call('HSCAN', key('buckets'), 0, 'COUNT', limit)[2]
  for at = 1, #found, 2 do
    if tonumber(string.match(found[at + 1], '^%d+')) <= NOW then call('HDEL', key('buckets'), found[at]) end
  end
end

-- Deletes the oldest events and moves the floor up to the last deleted one. An entry of the stream
-- is deleted with its last event.
local function prune_events()
  local gone, oldest_at, keep_from = 0, NOW - ARGS[2], nil
  local floor = heads.floor
  while gone < limit do
    local entries = call('XRANGE', key('events'), keep_from or '-', '+', 'COUNT', 100)
    local stop = #entries == 0
    for _, entry in ipairs(entries) do
      local last, at = tonumber(string.match(entry[1], '^%d+')), entry[2][2]
      local number = tonumber(entry[2][4])
      local first = last - (number - 1) * SHARDS
      if tonumber(at) > oldest_at or gone >= limit then
        stop = true
        break
      end
      local left = math.min(number, math.max(0, (last - math.max(floor, first - SHARDS)) / SHARDS))
      local cut = math.min(left, limit - gone)
      gone = gone + cut
      floor = last - (left - cut) * SHARDS
      if cut == left then keep_from = '(' .. entry[1] else stop = true end
    end
    if stop then break end
  end
  if keep_from then call('XTRIM', key('events'), 'MINID', whole(floor) .. '-1') end
  if floor > heads.floor then events.set_floor(floor) end
  return gone
end

local pruned, looked = prune_jobs()
local expired_keys, old_events = keys.prune(limit), 0
if EVENTS then old_events = prune_events() end
prune_holds()
groups.refresh_all()
lines.refresh_all()
prune_counts()
prune_buckets()
base.finish()
return {pruned, expired_keys, old_events, looked}
