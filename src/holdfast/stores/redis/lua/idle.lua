-- A claim that takes all of one line with few jobs, or finds nothing: that of an idle worker, whose
-- job waits for it. What is done is the same as elsewhere, and before the parts of the library are
-- made, which alone takes as long as all of this.
-- Gives nothing, and has written nothing, when there is more to do.

local FEW = 8

local REOPEN, CREDIT = key('reopen'), key('credit')

local CLAIM = claim_key(ARGS[2])

local UNTIL = whole(NOW)

-- Most shards have none of these keys: one command instead of one for each.
local bare = call('EXISTS', TTL, REOPEN, CREDIT, CLAIM) == 0

-- Whether something waits for its instant there, and it has come.
local function come(name) return call('ZCOUNT', name, '-inf', UNTIL) > 0 end

local function some_come()
  return come(DUE) or come(HELD) or not bare and (come(TTL) or come(REOPEN))
end

local function open_key(tenant) return key('open:' .. tenant) end

-- The lines that can be claimed from, up to two, as tenant and queue. Where nothing is set no tenant
-- rests, so all that are in a ring can.
local function open_lines(queues)
  local found = {}
  for _, queue in ipairs(queues or {}) do
    for _, tenant in ipairs(call('ZRANGE', key('ring:' .. queue), '0', '1')) do
      found[#found + 1] = {tenant, queue}
    end
  end
  if not queues then
    for _, tenant in ipairs(call('ZRANGE', TENANTS, '0', '1')) do
      for _, queue in ipairs(call('ZRANGE', open_key(tenant), '0', '1')) do
        found[#found + 1] = {tenant, queue}
      end
    end
  end
  return found
end

-- Takes a line that is empty now out of the turns, and ends that of its tenant.
local function close_line(tenant, queue)
  call('ZREM', open_key(tenant), queue)
  call('ZREM', key('ring:' .. queue), tenant)
  if call('EXISTS', open_key(tenant)) == 0 then
    call('ZREM', TENANTS, tenant)
  else
    call('ZADD', TENANTS, whole(core.tick('turn')), tenant)
  end
end

-- Remembers the claim, as lib_take does.
local function remember(seqs)
  call('SET', CLAIM, wide(NOW + REPEAT_US) .. table.concat(seqs), 'PX', whole(REPEAT_US / 1000))
end

-- The counts of a scope after so many jobs were leased.
local function some_leased(text, number)
  local waiting, scheduled, enqueued, processing, retrying, completed, failed, canceled, size =
    struct.unpack(TALLY, text)
  return struct.pack(TALLY, waiting, scheduled, enqueued - number, processing + number, retrying,
    completed, failed, canceled, size)
end

-- The rows of a line's jobs as leased, and where their leases stand; nil when not all are plain.
local function lease_all(claim, seqs)
  local texts, written, held, spent = call('HMGET', ROWS, unpack(seqs)), {}, {}, {}
  for index, seq in ipairs(seqs) do
    local new, more
    if texts[index] then new, more = leased(texts[index], claim) end
    if not new then
      log.forget()
      return nil
    end
    written[2 * index - 1], written[2 * index] = seq, new
    local place = more and held or spent
    place[#place + 1], place[#place + 2] = claim.till, seq
  end
  return written, held, spent
end

-- Takes all jobs of a line, which is empty then.
local function take_all(claim, tenant, queue)
  local line = tenant .. '\0' .. queue
  local seqs = call('ZRANGE', key('line:' .. line), '0', FEW)
  local number = #seqs
  if number == 0 or number > math.min(FEW, claim.limit) then return nil end
  local of_queue, of_tenant = 'q\0' .. line, 't\0' .. tenant .. '\0'
  local known = call('HMGET', key('counts'), of_queue, of_tenant)
  if not (known[1] and known[2]) then return nil end
  if not bare and call('HEXISTS', CREDIT, tenant) == 1 then return nil end
  local written, held, spent = lease_all(claim, seqs)
  if not written then return nil end
  call('DEL', key('line:' .. line)) -- Before all that needs memory, as `core.insist`.
  call('HSET', ROWS, unpack(written))
  if #held > 0 then call('ZADD', HELD, unpack(held)) end
  if #spent > 0 then call('ZADD', SPENT, unpack(spent)) end
  call('HSET', key('counts'), of_queue, some_leased(known[1], number),
    of_tenant, some_leased(known[2], number))
  close_line(tenant, queue)
  remember(seqs)
  log.save()
  local bodies, flat = call('HMGET', BODIES, unpack(seqs)), {}
  for index = 1, number do
    flat[3 * index - 2], flat[3 * index - 1] = seqs[index], written[2 * index]
    flat[3 * index] = bodies[index]
  end
  return {flat, {}}
end

local function idle()
  local claim = {worker = ARGS[1], nonce = ARGS[2], limit = ARGS[3], lease_us = ARGS[4]}
  if ARGS[5] or heads.rules > 0 or some_come() then return nil end
  if not bare and call('EXISTS', CLAIM) == 1 then return nil end
  local found = open_lines(ARGS[6])
  if #found > 1 then return nil end
  local answer = {{}, {}}
  if #found == 1 then answer = take_all(claim, found[1][1], found[1][2]) end
  if answer then core.save_heads() end
  return answer
end

local answer = idle()
if answer then return answer end
