-- extend: {extensions} -> for each the deadline, or the code of the refusal.
-- An extension is {tenant, id, token, lease_us, progress or nil}.

core.insist()

local names = {}
for index, item in ipairs(ARGS) do names[index] = rows.name(item[1], item[2]) end
rows.find(names)

local function extend(item)
  local row = rows.named(rows.name(item[1], item[2]))
  local refusal = rules.refusal(row, item[3], false)
  if refusal then return refusal end
  jobs.leave(row)
  row.lease, row.updated = math.max(row.lease, NOW + item[4]), NOW
  if item[5] then rows.keep(row, PROGRESS, item[5]) end
  jobs.enter(row)
  log.note('extended', row, row.lease)
  return {whole(row.lease)}
end

local answers = {}
for index, item in ipairs(ARGS) do answers[index] = extend(item) end
core.finish()
return answers
