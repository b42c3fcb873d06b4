-- explain: {tenant, id, ahead most, holders most} -> false when there is no such job, or {row as
-- told, rank in its line or -1, tenants in its queue's turns, head of its group or '', scopes,
-- the instant}.
-- A scope is {settings as JSON or '', running, live slots, token_at or '', holders, slots' ids}.

local WALK_MAX = 5000

local function inside(row, kind, part)
  return kind == 't' or (kind == 'q' and row.queue == part) or (kind == 'g' and row.group == part)
end

local function holders(kind, tenant, part, most)
  local found = {}
  for _, name in ipairs({'held', 'spent'}) do
    local seqs = packs.spread(call('ZRANGE', key(name), 0, WALK_MAX - 1), WALK_MAX)
    for _, row in ipairs(rows.list(seqs)) do
      if row.tenant == tenant and inside(row, kind, part) then found[#found + 1] = row.id end
      if #found >= most then return found end
    end
  end
  return found
end

local function told(kind, tenant, part, gate, most)
  local scope = counts.name(kind, tenant, part)
  local running = counts.of(kind, tenant, part)[PROCESSING]
  local at = gates.token_at(scope, gate.rate)
  local slots, who, ids = 0, {}, {}
  if gate.slots_count then
    slots = gates.slots(scope)
    ids = call('ZRANGEBYSCORE', key('slots:' .. scope), '(' .. whole(NOW), '+inf', 'LIMIT', 0, most)
  end
  if gate.max_running and running + slots >= gate.max_running then
    who = holders(kind, tenant, part, most)
  end
  local text = call('HGET', key('rules'), scope)
  return {text or '', running, slots, at and whole(at) or '', who, ids}
end

-- How many jobs stand before one in its line; nil when it stands in none.
local function place(row)
  local line = row.tenant .. '\0' .. row.queue
  local rank = call('ZRANK', key('line:' .. line), row.seq)
  if not rank then return nil end
  local ahead = call('ZRANGEBYSCORE', key('packed:' .. line), '-inf', whole(-row.priority),
    'WITHSCORES')
  for index = 1, #ahead, 2 do
    local member = ahead[index]
    if tonumber(ahead[index + 1]) < -row.priority or packs.first(member) < row.seq then
      rank = rank + packs.waiting(member) - 1
    end
  end
  return rank
end

core.insist()
local row = rows.named(rows.name(ARGS[1], ARGS[2]))
if not row then return false end
if row.packed then packs.open(row.packed) end
repair.once()
core.finish()
local rank, head = place(row), ''
local scopes = {
  told('t', row.tenant, '', gates.of('t', row.tenant, ''), ARGS[4]),
  told('q', row.tenant, row.queue, gates.of('q', row.tenant, row.queue), ARGS[4]),
}
if row.group then
  local gate = gates.group(row.tenant, row.group, row.queue)
  scopes[3] = told('g', row.tenant, row.group, gate, ARGS[4])
  local first = groups.head(row.tenant, row.group)
  if first and first ~= row.seq then head = rows.get(first).id end
end
return {
  rows.told({row})[1], rank or -1, call('ZCARD', key('ring:' .. row.queue)), head, scopes,
  whole(NOW),
}
