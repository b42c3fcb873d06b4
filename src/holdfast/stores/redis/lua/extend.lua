-- extend: extensions -> for each {the new deadline}, or the code of the refusal, or {'', the size
-- that its journal would have had...}. An extension is {tenant, id, sequence or false, nonce or
-- false, lease_us, progress or nil, entries or nil (lib_journal)}; see ack.

base.insist()

local names = {}
for at, item in ipairs(ARGS) do names[at] = rows.name(item[1], item[2]) end
rows.find(names)

local function extend(item, name)
  local row = rows.named(name)
  local refusal = rules.refusal(row, item[3], item[4], false)
  if refusal then return refusal end
  local too_much = item[7] and journal.write(row, item[7])
  if too_much then return {'', unpack(too_much)} end
  index.remove(row)
  row.lease, row.updated = math.max(row.lease, NOW + item[5]), NOW
  if item[6] then values.keep(row, PROGRESS, item[6]) end
  index.add(row)
  events.note('extended', row, row.lease)
  return {whole(row.lease)}
end

local answers = {}
for at, item in ipairs(ARGS) do answers[at] = extend(item, names[at]) end
base.finish()
return answers
