-- signal: {{{tenant, id, name, value}, ...}, by or nil} -> for each 1 (stored), 0 (an earlier one
-- counts), the code of the refusal, the size that its journal would have had (lib_journal), or
-- {'bytes', those that its tenant has, the most} if the tenant is full.
--
-- A signal and the ack that parks a job to await it meet in one step each, so neither misses the
-- other. It does not insist: like enqueue it brings data, so it is refused when memory is short.

base.by = ARGS[2]

local items, names, answers = ARGS[1], {}, {}
for at, item in ipairs(items) do names[at] = rows.name(item[1], item[2]) end
rows.find(names)

-- Why the tenant has no room for a signal, as `journal.no_room`; nil if it has.
local function no_room(tenant, value)
  local most = has_settings(tenant) and limits.of('t', tenant, '').max_bytes
  if not most then return nil end
  local held = counts.of('t', tenant, '')[BYTES]
  if held + #value <= SIGNALS_SHARE * most then return nil end
  return {'bytes', whole(held), whole(SIGNALS_SHARE * most)}
end

local function signal(row, name, value)
  if not row then return 'JOB_NOT_FOUND' end
  if row.state >= ENDED then return row.state == CANCELED and 'JOB_CANCELED' or 'JOB_TERMINAL' end
  if journal.has_signal(row, name) then return 0 end
  local full = no_room(row.tenant, value)
  if full then return full end
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
