-- extend: {extensions} -> for each the deadline, or the code of the refusal.
-- An extension is {tenant, id, seq or nil, nonce, lease_us, progress or nil}; see ack.

core.insist()

local names = {}
for index, item in ipairs(ARGS) do names[index] = rows.name(item[1], item[2]) end
rows.find(names)

local function extend(item)
  local row = rows.named(rows.name(item[1], item[2]))
  local refusal = rules.refusal(row, item[3], item[4], false)
  if refusal then return refusal end
  jobs.leave(row)
  row.lease, row.updated = math.max(row.lease, NOW + item[5]), NOW
  if item[6] then rows.keep(row, PROGRESS, item[6]) end
  jobs.enter(row)
  log.note('extended', row, row.lease)
  return {whole(row.lease)}
end

local answers = {}
for index, item in ipairs(ARGS) do answers[index] = extend(item) end
core.finish()
return answers
