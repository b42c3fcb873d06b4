-- prune: {limit, events_keep_us} -> {jobs, keys, events}, how many of each were deleted.

core.insist()
local limit = ARGS[1]

local function prune_jobs()
  local seqs = call('ZRANGEBYSCORE', DONE, '-inf', whole(NOW), 'LIMIT', 0, limit)
  rows.load(seqs)
  for _, seq in ipairs(seqs) do
    local row = rows.get(seq)
    if row then
      jobs.remove(row)
      log.tail(rows.name_of(row), row.last)
    else
      call('ZREM', DONE, seq)
    end
  end
  return #seqs
end

-- A timed key past its time stays while its job lives.
local function prune_keys()
  local past = call('ZRANGEBYSCORE', key('key_ends'), '-inf', whole(NOW), 'LIMIT', 0, limit)
  for _, name in ipairs(past) do
    local text = call('HGET', key('keys'), name)
    local till, id = string.match(text or '', '^(%d*)%z(.*)$')
    if id and tonumber(till or '') and tonumber(till) <= NOW then
      local tenant = string.match(name, '^([^%z]*)%z')
      local row = rows.named(rows.name(tenant, id))
      if row and row.state < ENDED and row.key then
        call('HSET', key('keys'), name, '\0' .. id)
      else
        call('HDEL', key('keys'), name)
      end
    end
    call('ZREM', key('key_ends'), name)
  end
  return #past
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

-- Scopes without jobs or slots, and buckets that are full, say nothing any more.
local function prune_counts()
  counts.save()
  for _, kind in ipairs({'t', 'q', 'g'}) do
    zsettle(key('scopes:' .. kind))
    local start = tonumber(call('HGET', key('heads'), 'sweep:' .. kind) or '0')
    local scopes = call('ZRANGE', key('scopes:' .. kind), start, start + limit - 1)
    local kept = 0
    for _, part in ipairs(scopes) do
      local tenant, name = string.match(part, '^([^%z]*)%z(.*)$')
      local record, scope = counts.of(kind, tenant, name), kind .. '\0' .. part
      local used = counts.alive(record) + record[COMPLETED] + record[FAILED] + record[CANCELED]
      if used == 0 and gates.slots(scope) == 0 then
        zdrop(key('scopes:' .. kind), part)
        hdrop(key('counts'), scope)
        call('DEL', key('slots:' .. scope))
      else
        kept = kept + 1
      end
    end
    local on = #scopes < limit and 0 or start + kept
    call('HSET', key('heads'), 'sweep:' .. kind, on)
  end
end

local function prune_buckets()
  local found = call('HSCAN', key('buckets'), 0, 'COUNT', limit)[2]
  for index = 1, #found, 2 do
    if tonumber(found[index + 1]) <= NOW then call('HDEL', key('buckets'), found[index]) end
  end
end

-- Cuts the log's oldest facts off and remembers where it begins now. An entry goes with its last.
local function prune_events()
  local gone, horizon, keep_from = 0, NOW - ARGS[2], nil
  local floor = heads.floor
  while gone < limit do
    local from = keep_from or '-'
    local entries = call('XRANGE', key('events'), from, '+', 'COUNT', 100)
    local stop = #entries == 0
    for _, entry in ipairs(entries) do
      local last, at = tonumber(string.match(entry[1], '^%d+')), entry[2][2]
      local number = tonumber(entry[2][4])
      local first = last - (number - 1) * SHARDS
      if tonumber(at) > horizon or gone >= limit then
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
  if floor > heads.floor then
    core.set_head('floor', floor)
    zsettle(TAILS)
    call('ZREMRANGEBYSCORE', TAILS, '-inf', whole(floor))
    packs.prune(floor, limit)
  end
  return gone
end

local pruned, keys, events = prune_jobs(), prune_keys(), 0
if EVENTS then events = prune_events() end
prune_holds()
groups.open_up()
lines.open_up()
prune_counts()
prune_buckets()
core.finish()
return {pruned, keys, events}
