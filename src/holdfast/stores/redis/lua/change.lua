-- change: {selection (lib_selection), act, after, limit, priority, delay, run_at or nil, by or nil}
-- -> {where to go on or '', tenant, id, tenant, id, ...}. Changes jobs that nobody holds. Replays:
-- see replay.lua.

base.insist()
base.by = ARGS[8]
local act, limit = ARGS[2], ARGS[4]

local function can_change(row)
  return row.state ~= PROCESSING and (act == 'delete' or row.state < ENDED)
end

local function change(row)
  local lived = row.state < ENDED
  if act == 'delete' then
    index.delete(row)
    events.note('deleted', row, nil, nil, lived)
    return
  end
  index.remove(row)
  if act == 'reprioritise' then
    row.priority = ARGS[5]
  else
    row.run_at = ARGS[7] or NOW + ARGS[6]
    if row.state ~= WAITING then row.state = row.run_at > NOW and SCHEDULED or ENQUEUED end
  end
  row.updated = NOW
  index.add(row)
  events.note('changed', row, row.run_at, act)
end

local found = {}
local reached = selection.each(selection.of(ARGS[1]), ARGS[3], false, function(row)
  if not can_change(row) then return false end
  if #found >= limit then return true end
  found[#found + 1] = row
end)
local answer = {reached and whole(reached) or ''}
for _, row in ipairs(found) do
  change(row)
  answer[#answer + 1] = row.tenant
  answer[#answer + 1] = row.id
end
base.finish()
return answer
