-- serve: {a claim, lines} -> {rows as told, how many each line took}. Takes from the lines that a
-- claim over several shards gives this one: {tenant, queue, allowed, room, place}.

local claim = take.claim_of(ARGS[1])
core.insist()
local taken = {}
for index, line in ipairs(ARGS[2]) do
  core.place = line[5]
  local got = take.again(claim, line[1], line[2])
  if got == 0 then
    lines.allowance(line[1], line[2], 0)
    got = take.visit(line[1], line[2], claim, line[3], line[4])
  end
  taken[index] = got
end
return {take.answer(), taken}
