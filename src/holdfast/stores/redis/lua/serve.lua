-- serve: {a claim, tenants} -> {rows as told, how many each tenant took}. Takes from the tenants that
-- a claim over several shards gives this one: {tenant, allowed, room, place}. Each is named once.

local claim = take.claim_of(ARGS[1])
core.insist()
local taken = {}
if take.again(claim) then -- Its answer was lost.
  local number = {}
  for index = 1, take.told do
    local tenant = take.rows[index].tenant
    number[tenant] = (number[tenant] or 0) + 1
  end
  for index, one in ipairs(ARGS[2]) do taken[index] = number[one[1]] or 0 end
  return {take.answer(claim, true), taken}
end
for index, one in ipairs(ARGS[2]) do
  core.place = one[4]
  lines.allowance(one[1], 0)
  taken[index] = take.turn(one[1], claim, one[2], one[3])
end
return {take.answer(claim), taken}
