-- explain: {tenant, id, holders most} -> false if there is no such job, or {row, jobs ahead of it
-- in its line, tenants in the turns of its queue, head of its group or '', scopes, the instant, the
-- tiers that concern its tenant as {name, defaults as JSON, ...}, the number of scopes of the
-- platform with settings}. Reads only.
--
-- Over several shards the scopes of the platform are left out. Each shard is asked for its part of
-- them: {'', queue, type} -> scopes, with all holders. The settings are at their home, shard 0.
--
-- A scope is {settings as JSON or '', running, live slots, token_at or '', holders, names of the
-- slots}. Those of the platform come first, if it has settings; their holders are {tenant, how many
-- it holds, ...}. The answer is what a claim would find: jobs that are due, and jobs whose lease
-- expired with attempts left, are ready although no claim has moved them yet.

local ROWS_MAX = 5000

-- The rows of a sorted set whose instant has passed.
local function past(name, most)
  return rows.list(call('ZRANGEBYSCORE', key(name), '-inf', whole(NOW), 'LIMIT', 0, most))
end

local function inside(row, kind, tenant, part)
  if tenant == '' then
    return kind == 'p' or (kind == 'q' and row.queue == part) or (kind == 'y' and row.type == part)
  end
  return row.tenant == tenant
    and (kind == 't' or (kind == 'q' and row.queue == part) or (kind == 'g' and row.group == part))
end

-- How many jobs of a scope run: those whose lease expired with attempts left do not.
local function running(kind, tenant, part)
  local number = 0
  if tenant == '' then
    number = platform.running(counts.name(kind, '', part)) or 0
  else
    number = counts.of(kind, tenant, part)[PROCESSING]
  end
  for _, row in ipairs(past('held', ROWS_MAX)) do
    if inside(row, kind, tenant, part) then number = number - 1 end
  end
  return number
end

-- Calls `visit` with the jobs of a scope that run, until it returns true.
local function each_holder(kind, tenant, part, visit)
  for name, from in pairs({held = '(' .. whole(NOW), spent = '-inf'}) do
    local seqs = call('ZRANGEBYSCORE', key(name), from, '+inf', 'LIMIT', 0, ROWS_MAX)
    for _, row in ipairs(rows.list(seqs)) do
      if inside(row, kind, tenant, part) and visit(row) then return end
    end
  end
end

-- The ids of jobs of a scope that run, at most `most`; over all tenants, how many each has.
local function holders(kind, tenant, part, most)
  local found, by_tenant = {}, {}
  each_holder(kind, tenant, part, function(row)
    if tenant == '' then
      by_tenant[row.tenant] = (by_tenant[row.tenant] or 0) + 1
    else
      found[#found + 1] = row.id
      return #found >= most
    end
  end)
  for name, number in pairs(by_tenant) do
    found[#found + 1], found[#found + 2] = name, number
  end
  return found
end

local function scope(kind, tenant, part, limit, most)
  local name = counts.name(kind, tenant, part)
  local number, at = running(kind, tenant, part), limits.token_at(name, limit.rate)
  local slots, who, ids = 0, {}, {}
  if limit.slots_count then
    slots = limits.slots(name)
    ids = call('ZRANGEBYSCORE', key('slots:' .. name), '(' .. whole(NOW), '+inf', 'LIMIT', 0, most)
  end
  if tenant == '' and SHARDS > 1 or limit.max_running and number + slots >= limit.max_running then
    who = holders(kind, tenant, part, most)
  end
  return {call('HGET', key('rules'), name) or '', number, slots, at and whole(at) or '', who, ids}
end

-- How many members of a line come before a row that is not in it: members of equal score are in the
-- order of their sequence, so the place is found by halving.
local function place(line, row)
  local score = whole(-row.priority)
  local low, high = call('ZCOUNT', line, '-inf', '(' .. score), call('ZCOUNT', line, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local seq = call('ZRANGE', line, middle, middle)[1]
    if seq < row.seq then low = middle + 1 else high = middle end
  end
  return low
end

local function comes_before(one, row)
  return one.priority > row.priority or (one.priority == row.priority and one.seq < row.seq)
end

local function rank(line, row) return call('ZRANK', line, row.seq) or place(line, row) end

-- How many ready jobs of its line come before a row.
local function ahead(row)
  local number = rank(lines.of(row.tenant, row.queue).key, row)
  if heads.aside > 0 then
    for _, name in ipairs(aside.keys(row)) do number = number + rank(name, row) end
  end
  for name, change in pairs({due = 1, held = 1, ttl = -1}) do
    for _, one in ipairs(past(name, REPAIR_MAX)) do
      local in_line = one.state == ENQUEUED and not rows.has(one, WAITS) and not rows.has(one, LATE)
      local counts_here = change > 0 or in_line
      if counts_here and one.tenant == row.tenant and one.queue == row.queue
        and comes_before(one, row)
      then
        number = number + change
      end
    end
  end
  return math.max(0, number)
end

-- The id of the first job of a group that has not ended; '' if it is this one.
local function head_of_group(row)
  local order = key('order:' .. row.tenant .. '\0' .. row.group)
  local first = rows.list(call('ZRANGE', order, 0, 9))[1]
  return first and first.seq ~= row.seq and first.id or ''
end

-- The scopes of the platform that jobs of a queue and a type are in.
local function over_all(job, most)
  local found = {}
  for at, name in ipairs(platform.scopes(job)) do
    local kind, part = aside.parts(name)
    found[at] = scope(kind, '', part, platform.of(name), most)
  end
  return found
end

if ARGS[1] == '' then return over_all({queue = ARGS[2], type = ARGS[3]}, 0) end
local row = rows.named(rows.name(ARGS[1], ARGS[2]))
if not row then return false end
local tenant, queue, group, most = row.tenant, row.queue, row.group, ARGS[3]
local head, scopes = '', heads.platform > 0 and SHARDS == 1 and over_all(row, most) or {}
scopes[#scopes + 1] = scope('t', tenant, '', limits.of('t', tenant, ''), most)
scopes[#scopes + 1] = scope('q', tenant, queue, limits.of('q', tenant, queue), most)
if group then
  scopes[#scopes + 1] = scope('g', tenant, group, limits.group(tenant, group, queue), most)
  head = head_of_group(row)
end
return {
  values.answers({row}), ahead(row), call('ZCARD', lines.ring_key(queue)), head, scopes,
  whole(NOW), heads.tiers > 0 and tiers.texts(tenant) or {}, heads.platform,
}
