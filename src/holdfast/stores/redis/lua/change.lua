-- change: {selection, act, after, limit, priority, delay, run_at or nil, by or nil} -> {where to
-- go on or '', tenant, id, tenant, id, ...}. Replays are replay.lua's.

core.insist()
core.by = ARGS[8]
local act, limit = ARGS[2], ARGS[4]

local function possible(row)
  return row.state ~= PROCESSING and (act == 'delete' or row.state < ENDED)
end

local function change(row)
  local lived = row.state < ENDED
  if act == 'delete' then
    jobs.remove(row)
    log.note('deleted', row, nil, nil, lived)
    return
  end
  jobs.leave(row)
  if act == 'reprioritise' then
    row.priority = ARGS[5]
  else
    row.run_at = ARGS[7] or NOW + ARGS[6]
    row.state = row.run_at > NOW and SCHEDULED or ENQUEUED
  end
  row.updated = NOW
  jobs.enter(row)
  log.note('changed', row, row.run_at, act)
end

local found = {}
local reached = walk.each(walk.selection(ARGS[1]), ARGS[3], false, function(row)
  if not possible(row) then return false end
  if #found >= limit then return true end
  found[#found + 1] = row
end)
local answer = {reached and whole(reached) or ''}
for _, row in ipairs(found) do
  change(row)
  answer[#answer + 1] = row.tenant
  answer[#answer + 1] = row.id
end
core.finish()
return answer
