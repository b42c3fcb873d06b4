-- hold: {takes, under or nil} -> {name, owner, until, note, ...}. A take is {name, owner, length,
-- note, kind or nil, tenant, part, slot}; that of a slot takes a place of its scope.

local takes, under = ARGS[1], ARGS[2]

local function held(name)
  local text = call('HGET', key('holds'), name)
  if not text then return nil end
  local hold = cmsgpack.unpack(text)
  return hold[1], hold[2], hold[3]
end

-- Keeps the slots of scopes in step with the holds that stand for them.
local function slot(one, till)
  if not one[5] then return end
  local scope = counts.name(one[5], one[6], one[7])
  if till then
    call('ZADD', key('slots:' .. scope), till, one[8])
    counts.list(one[5], one[6], one[7])
    gates.reopen_at(till, scope)
  else
    call('ZREM', key('slots:' .. scope), one[8])
  end
  gates.look(scope)
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
  call('HSET', key('holds'), name, cmsgpack.pack({one[2], till, one[4]}))
  call('ZADD', key('hold_names'), 0, name)
  call('ZADD', key('hold_ends'), till, name)
  slot(one, till)
  return {name, one[2], whole(till), one[4]}
end

local answer = {}
if #takes > 0 then
  core.insist()
  for index, one in ipairs(takes) do answer[index] = take(one) end
  core.finish()
end
if under then
  answer = {}
  for _, name in ipairs(
    call('ZRANGEBYLEX', key('hold_names'), '[' .. under, '(' .. under .. '\255'))
  do
    local owner, till, note = held(name)
    if till > NOW then answer[#answer + 1] = {name, owner, whole(till), note} end
  end
end
return answer
