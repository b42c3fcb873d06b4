-- claim: a claim (see lib_take) -> rows as told. One that was made before gives its own leases. Else
-- it repairs first, then takes from the tenants in turn.

local claim = take.claim_of(ARGS)
core.insist()
if take.again(claim) then return take.answer(claim, true) end
repair.all()

-- Gives each of the tenants its turn, until the claim is full. Returns how many have nothing more.
local function round(found, dry)
  local weights, total, dried = {}, 0, 0
  for index, tenant in ipairs(found) do
    weights[index] = gates.weight(tenant)
    total = total + weights[index]
  end
  local times = take.rounds(claim.limit - take.count, #found, total)
  for index, tenant in ipairs(found) do
    local room = claim.limit - take.count
    if room == 0 then break end
    local allowed = lines.allowance(tenant, weights[index] * times)
    local _, is_dry = take.turn(tenant, claim, allowed, room)
    if is_dry then
      dry[tenant] = true
      dried = dried + 1
    end
  end
  return dried
end

local dry, dried = {}, 0
while take.count < claim.limit do
  -- More tenants than jobs wanted cannot be served anyway.
  local found = {}
  local most = claim.limit - take.count + dried
  for _, one in ipairs(lines.tenants(claim.tenants, claim.queues, most)) do
    if not dry[one[2]] then found[#found + 1] = one[2] end
  end
  if #found == 0 then break end
  dried = dried + round(found, dry)
end
return take.answer(claim)
