-- cancel: {{{tenant, id}, ...}, by or nil} -> for each 1 (canceled), 0 (it ended otherwise) or -1
-- (not found). Over several shards a report may come last, as in ack.

base.insist()
base.by = ARGS[2]

local items, names, answers = ARGS[1], {}, {}
for at, item in ipairs(items) do names[at] = rows.name(item[1], item[2]) end
rows.find(names)

local function cancel(row)
  if not row then return -1 end
  if row.state < ENDED then
    index.remove(row)
    row.state, row.nonce, row.reason = CANCELED, '', 0 -- Only failed jobs have a reason.
    index.finish(row)
    events.note('canceled', row, nil, nil, true)
  end
  return row.state == CANCELED and 1 or 0
end

for at, name in ipairs(names) do answers[at] = cancel(rows.named(name)) end
base.finish()
if SHARDS > 1 and rawget(library, 'platform') then answers[#answers + 1] = permits.report() end
return answers
