-- hold: {takes, page or nil, most, check} -> {0 or a tenant, where to go on or '', {name, owner,
-- until, note}, ...}.
--
-- A take is {name, owner, length, note, kind or nil, tenant, part, slot}; with a kind it is a slot
-- of that scope. A page is {from, to, limit} of names in order. A tenant may hold `most` slots: if
-- it would have more, the answer names it and nothing changes. `check`: only this is asked.

local READ_MAX = 2000 -- Names that one call reads; some may have expired.

local takes, page, most, check = ARGS[1], ARGS[2], ARGS[3], ARGS[4]

local function held(name)
  local text = call('HGET', key('holds'), name)
  if not text then return nil end
  return unpack(cmsgpack.unpack(text))
end

local function slots_of(tenant) return key('slots_of:' .. tenant) end

-- The tenant that would have too many slots; nil if none would.
local function too_many()
  local new, seen = {}, {}
  for _, one in ipairs(takes) do
    if one[5] and one[3] > 0 and not seen[one[1]] then
      seen[one[1]] = true
      local till = call('ZSCORE', slots_of(one[6]), one[1])
      if not till or tonumber(till) <= NOW then new[one[6]] = (new[one[6]] or 0) + 1 end
    end
  end
  for tenant, more in pairs(new) do
    if call('ZCOUNT', slots_of(tenant), '(' .. whole(NOW), '+inf') + more > most then
      return tenant
    end
  end
end

-- Stores or deletes the slot of a scope, with its hold.
local function slot(one, till)
  if not one[5] then return end
  local scope = counts.name(one[5], one[6], one[7])
  if till then
    call('ZADD', key('slots:' .. scope), till, one[8])
    call('ZADD', slots_of(one[6]), till, one[1])
    counts.list(one[5], one[6], one[7])
    limits.recheck_at(till, scope)
  else
    call('ZREM', key('slots:' .. scope), one[8])
    call('ZREM', slots_of(one[6]), one[1])
  end
  limits.recheck(scope)
end

local function take(one)
  local name = one[1]
  local owner, till, note = held(name)
  if owner and till > NOW and owner ~= one[2] then return {name, owner, whole(till), note} end
  if one[3] <= 0 then
    call('HDEL', key('holds'), name)
    call('ZREM', key('hold_names'), name)
    call('ZREM', key('hold_ends'), name)
    slot(one, nil)
    return {name, '', '0', ''}
  end
  till = NOW + one[3]
  call('HSET', key('holds'), name, cmsgpack.pack({one[2], till, one[4], one[5] and one[6]}))
  call('ZADD', key('hold_names'), 0, name)
  call('ZADD', key('hold_ends'), till, name)
  slot(one, till)
  return {name, one[2], whole(till), one[4]}
end

local full = too_many()
if full or check then return {full or 0, ''} end

local answer = {0, ''}
if #takes > 0 then
  base.insist()
  for index, one in ipairs(takes) do answer[index + 2] = take(one) end
  base.finish()
end
if page then
  local names = call('ZRANGEBYLEX', key('hold_names'), page[1], page[2], 'LIMIT', 0, READ_MAX)
  for _, name in ipairs(names) do
    local owner, till, note = held(name)
    if till > NOW and #answer < page[3] + 2 then
      answer[#answer + 1] = {name, owner, whole(till), note}
    end
  end
  if #names == READ_MAX then answer[2] = names[READ_MAX] end
end
return answer
