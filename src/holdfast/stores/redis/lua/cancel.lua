-- cancel: {{{tenant, id}, ...}, by or nil} -> for each -1 (not found), 1 (canceled now) or 0 (ended otherwise).

core.insist()
core.by = ARGS[2]

local items, names = ARGS[1], {}
for index, item in ipairs(items) do names[index] = rows.name(item[1], item[2]) end
rows.find(names)

local function cancel(item)
  local row = rows.named(rows.name(item[1], item[2]))
  if not row then return -1 end
  if row.state < ENDED then
    jobs.leave(row)
    row.state, row.nonce, row.reason = CANCELED, '', 0 -- A reason is for the dead letters only.
    jobs.finish(row)
    log.note('canceled', row, nil, nil, true)
  end
  return row.state == CANCELED and 1 or 0
end

local answers = {}
for index, item in ipairs(items) do answers[index] = cancel(item) end
core.finish()
return answers
