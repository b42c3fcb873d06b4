-- A single job that is ready at once, in a shard where nothing is set: what most calls of enqueue
-- bring. What is done is the same as elsewhere, in as few commands as can be, and before the parts of
-- the library are made, which alone takes longer than all of this.
-- Gives nothing, and has written nothing, when the job is not such a one.

-- The counts of a scope with one more enqueued job, and so many bytes more.
local function one_more(text, bytes)
  local waiting, scheduled, enqueued, processing, retrying, completed, failed, canceled, size =
    struct.unpack(TALLY, text)
  return struct.pack(TALLY, waiting, scheduled, enqueued + 1, processing, retrying, completed,
    failed, canceled, size + bytes)
end

-- Lets a line take turns. False when it does already.
local function open_line(tenant, queue)
  local number = core.next('visit')
  if call('ZADD', key('open:' .. tenant), 'NX', whole(number), queue) == 0 then return false end
  core.set_head('visit', number)
  local turn = core.next('turn')
  if call('ZADD', TENANTS, 'NX', whole(turn), tenant) == 1 then
    core.set_head('turn', turn)
  else
    turn = tonumber(call('ZSCORE', TENANTS, tenant))
  end
  call('ZADD', key('ring:' .. queue), whole(turn), tenant)
  return true
end

local function single()
  local priority = ARGS[1][1]
  if #ARGS[1] ~= 1 or type(priority) ~= 'number' or ARGS[2] or heads.rules > 0 then return nil end
  local name, fixed, body = ARGV[3], ARGV[4], ARGV[5]
  local _, _, _, _, size, tenant, id, queue, its_type, group, job_key =
    struct.unpack('>' .. FIXED, fixed)
  if group ~= '' or job_key ~= '' then return nil end
  local line = tenant .. '\0' .. queue
  local of_queue, of_tenant = 'q\0' .. line, 't\0' .. tenant .. '\0'
  local known = call('HMGET', key('counts'), of_queue, of_tenant)
  if not (known[1] and known[2]) then return nil end
  if EVENTS and call('ZSCORE', TAILS, name) then return nil end
  if heads.packs > 0 then -- It may be in a pack.
    local stem = string.sub(name, 1, #name - #id + STEM_SIZE)
    if call('ZRANGEBYLEX', key('spans'), '[' .. stem, '(' .. name .. '\1', 'LIMIT', '0', '1')[1] then
      return nil
    end
  end
  local number = core.next('seq')
  local seq = wide(number)
  if call('HSETNX', NAMES, name, seq) == 0 then return nil end
  core.set_head('seq', number)
  local cursor = log.fact('enqueued', tenant, id, queue, its_type, 0, 0, nil, nil, 0)
  log.save()
  call('HSET', ROWS, seq, struct.pack(HEAD .. 'HH', ENQUEUED, 0, 0, 0, 0, 0, 0, priority, NOW, NOW,
    NOW, 0, 0, cursor, 0, 0) .. fixed)
  call('HSET', BODIES, seq, body)
  call('ZADD', key('of:' .. tenant), seq, seq)
  call('ZADD', key('line:' .. line), whole(-priority), seq)
  call('HSET', key('counts'), of_queue, one_more(known[1], 0), of_tenant, one_more(known[2], size))
  local opened = open_line(tenant, queue)
  core.save_heads()
  -- Who sleeps on a line has seen it closed, and was told when it opened. Only those who follow the
  -- log want to hear of each job.
  if opened or EVENTS then call('PUBLISH', CHANNEL, cmsgpack.pack({false, {line}, false, {}})) end
  return {1, 0} -- Of no other call: the instant that its sequences count from is not asked for.
end

local answer = single()
if answer then return answer end
