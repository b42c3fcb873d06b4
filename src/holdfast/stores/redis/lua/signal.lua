-- signal: {{{tenant, id, name, value}, ...}, by or nil} -> for each 1 (stored), 0 (an earlier one
-- counts), the code of the refusal, or the size that its journal would have had (lib_journal).
--
-- A signal and the ack that parks a job to await it meet in one step each, so neither misses the
-- other. It does not insist: like enqueue it brings data, so it is refused when memory is short.

base.by = ARGS[2]

local items, names, answers = ARGS[1], {}, {}
for at, item in ipairs(items) do names[at] = rows.name(item[1], item[2]) end
rows.find(names)

local function signal(row, name, value)
  if not row then return 'JOB_NOT_FOUND' end
  if row.state >= ENDED then return row.state == CANCELED and 'JOB_CANCELED' or 'JOB_TERMINAL' end
  if journal.has_signal(row, name) then return 0 end
  local too_much = journal.write(row, {'g', name, value})
  if too_much then return too_much end
  rows.unmark(row, ENDS_WITH_PARENTS) -- It runs, so that it can do what the signal says.
  events.note('signaled', row, nil, name)
  joins.ready(row, 'signal:' .. name)
  return 1
end

for at, name in ipairs(names) do answers[at] = signal(rows.named(name), items[at][3], items[at][4]) end
base.finish()
return answers
