-- claim: a claim (see lib_take) -> rows as told. Repairs first, then takes from the lines in turn.

local LINES_PER_CLAIM = 8

-- As `scope.rounds`.
local function rounds(room, weights)
  local total = 0
  for _, weight in ipairs(weights) do total = total + weight end
  return math.max(1, math.floor(room / total),
    math.floor(room * #weights / (total * LINES_PER_CLAIM)))
end

-- Gives each of the lines its turn, until the claim is full.
local function round(claim, found, dry)
  local weights = {}
  for index, line in ipairs(found) do
    weights[index] = ruled(line[2]) and gates.weight(line[2]) or 1
  end
  local times = rounds(claim.limit - take.count, weights)
  local dried = 0
  for index, line in ipairs(found) do
    local room = claim.limit - take.count
    if room == 0 then break end
    local allowed = lines.allowance(line[2], line[3], weights[index] * times)
    local got, wanted = take.visit(line[2], line[3], claim, allowed, room)
    if got < wanted or wanted == 0 then
      dry[line[2] .. '\0' .. line[3]] = true
      dried = dried + 1
    end
  end
  return dried
end

local claim = take.claim_of(ARGS)
core.insist()
repair.all()
take.again(claim)
local dry, dried = {}, 0
while take.count < claim.limit do
  -- More lines than jobs wanted cannot be served anyway.
  local found = {}
  for _, line in ipairs(lines.open(claim.tenants, claim.queues, claim.limit - take.count + dried))
  do
    if not dry[line[2] .. '\0' .. line[3]] then found[#found + 1] = line end
  end
  if #found == 0 then break end
  dried = dried + round(claim, found, dry)
end
return take.answer()
