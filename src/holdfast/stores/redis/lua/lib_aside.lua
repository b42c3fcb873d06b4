-- Aside: what waits because a queue or a type has no room over all tenants. Of a queue whole lines
-- wait, of a type single jobs. They are in no key that claims walk, so they hide nothing.
--
--   aside:<scope>             tenants that wait at a scope, by a copy of their turn
--   aside:<scope, q, queue>   of a type: those that wait in this queue
--   aside:<scope, t, tenant>  of a type: the queues in which the tenant waits, by their last visit
--   aside_of:<tenant>         the scopes at which the tenant waits
--   typed:<type, tenant, queue>  the jobs that wait for their type, as in their line
--
-- lib_resume lets in again what waits. Jobs that were canceled may leave an empty entry, which goes
-- when it is let in.

local WAKE_MAX = 16 -- Tenants of a scope, and queues of each, that are woken by name.

local held, firsts, joined = {}, {}, {}

-- The set of the tenants that wait at a scope; of a type, by a queue or a tenant too.
function aside.key(scope, kind, part)
  return key('aside:' .. scope .. (kind and '\0' .. kind .. '\0' .. part or ''))
end
local aside_key = aside.key
local function jobs_key(type, tenant, queue)
  return key('typed:' .. type .. '\0' .. tenant .. '\0' .. queue)
end
local function job_key(row) return jobs_key(row.type, row.tenant, row.queue) end

-- The kind and the name of a scope of the platform.
function aside.parts(scope) return string.match(scope, '^(%a)%z%z(.*)$') end
local parts = aside.parts

-- Whether a tenant waits at any scope.
function aside.waits(tenant)
  local name = key('aside_of:' .. tenant)
  zflush(name)
  return call('EXISTS', name) == 1
end

-- Whether a whole line waits for its queue.
function aside.holds(tenant, queue)
  local line = tenant .. '\0' .. queue
  if held[line] == nil then
    local name = aside_key('q\0\0' .. queue)
    zflush(name)
    held[line] = call('ZSCORE', name, tenant) ~= false
  end
  return held[line]
end

-- -- set aside ------------------------------------------------------------------------------------

-- Lists a tenant at a scope; at a type with the queue of the job.
local function join(scope, tenant, queue)
  local name = scope .. '\0' .. tenant .. '\0' .. (queue or '')
  if joined[name] then return end
  joined[name] = true
  if heads.aside == 0 then base.set_head('aside', 1) end
  local turn = turns.turn(tenant) or turns.kept(tenant) or 0
  zput(aside_key(scope), tenant, turn)
  zput(key('aside_of:' .. tenant), scope, 0)
  if SHARDS > 1 then zput(key('ready'), scope, 0) end -- The home says when there is room.
  if queue then
    local queues = aside_key(scope, 't', tenant)
    zflush(queues)
    zput(aside_key(scope, 'q', queue), tenant, turn)
    call('ZADD', queues, 'NX', whole(base.tick('visit')), queue)
  end
end

local function leave(scope, tenant, queue)
  joined[scope .. '\0' .. tenant .. '\0' .. (queue or '')] = nil
  if queue then
    local queues = aside_key(scope, 't', tenant)
    zdrop(aside_key(scope, 'q', queue), tenant)
    zdrop(queues, queue)
    zflush(queues)
    if call('EXISTS', queues) == 1 then return end
  end
  zdrop(aside_key(scope), tenant)
  zdrop(key('aside_of:' .. tenant), scope)
end

function aside.set_line(line)
  join('q\0\0' .. line.queue, line.tenant)
  held[line.name] = true
end

-- The first job of a row's line that waits for the same type, as {score, sequence}; false if none.
local function first_of(row)
  local name = job_key(row)
  if firsts[name] == nil then
    zflush(name)
    local found = call('ZRANGE', name, 0, 0, 'WITHSCORES')
    firsts[name] = found[1] and {tonumber(found[2]), found[1]} or false
  end
  return firsts[name]
end

-- Whether a job of the same line and type that comes before it waits.
function aside.is_behind(row)
  local first, score = heads.aside > 0 and first_of(row), -row.priority
  return first and (first[1] < score or (first[1] == score and first[2] < row.seq))
end

-- A job that was taken out of its line waits for its type. Others of its group may go first.
function aside.set_job(row)
  if not aside.is_behind(row) then firsts[job_key(row)] = {-row.priority, row.seq} end
  zput(job_key(row), row.seq, -row.priority)
  join('y\0\0' .. row.type, row.tenant, row.queue)
  index.keep_age(row)
  if row.group then groups.forget(row) end
end

-- The sets of the jobs of a row's line that wait for their types.
function aside.keys(row)
  local found = {}
  local scopes = call('ZRANGEBYLEX', key('aside_of:' .. row.tenant), '[y\0\0', '(y\0\1')
  for _, scope in ipairs(scopes) do
    local _, type = parts(scope)
    found[#found + 1] = jobs_key(type, row.tenant, row.queue)
  end
  return found
end

-- Removes a job that leaves its line, if it waits.
function aside.drop(row)
  zdrop(job_key(row), row.seq)
  firsts[job_key(row)] = nil
end

-- -- let in ---------------------------------------------------------------------------------------

function aside.let_line_in(scope, tenant)
  local _, queue = parts(scope)
  leave(scope, tenant)
  held[tenant .. '\0' .. queue] = false
  lines.touch(tenant, queue)
end

-- Puts the first jobs that wait for a type back into their line or group. Returns how many, and how
-- many of these are in the line for sure. An empty entry counts as one job.
function aside.let_jobs_in(scope, tenant, queue, most)
  local _, type = parts(scope)
  local name, seqs = jobs_key(type, tenant, queue), {}
  zflush(name)
  firsts[name] = nil
  local popped = call('ZPOPMIN', name, most)
  for at = 1, #popped, 2 do seqs[#seqs + 1] = popped[at] end
  local entered = 0
  for _, row in ipairs(rows.list(seqs)) do
    if index.let_in(row) then entered = entered + 1 end
  end
  if call('EXISTS', name) == 0 then
    leave(scope, tenant, queue)
  else
    zput(aside_key(scope, 't', tenant), queue, base.tick('visit'))
  end
  return math.max(1, #seqs), entered
end

-- -- wake-ups -------------------------------------------------------------------------------------

-- Wakes those who sleep on lines that wait at a scope.
function aside.wake(scope)
  local kind, part = parts(scope)
  zflush(aside_key(scope))
  local tenants = call('ZRANGE', aside_key(scope), 0, WAKE_MAX)
  if #tenants > WAKE_MAX then base.wake_all() end
  for at = 1, #tenants <= WAKE_MAX and #tenants or 0 do
    local queues, name = {part}, aside_key(scope, 't', tenants[at])
    if kind == 'y' then
      zflush(name)
      queues = call('ZRANGE', name, 0, WAKE_MAX)
      if #queues > WAKE_MAX then base.wake_all() end
    end
    for _, queue in ipairs(queues) do base.wake(tenants[at] .. '\0' .. queue) end
  end
end
