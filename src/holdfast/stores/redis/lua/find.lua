-- find: {selection (lib_selection), after or nil, limit, newest first, unreplayed, journals} ->
-- {rows, where to go on or '', the instant of the answer}. `unreplayed`: only jobs that can be
-- replayed. `journals`: with all of their journals. Reads only.

local limit, list = ARGS[3], {}
local reached = selection.each(selection.of(ARGS[1]), ARGS[2], ARGS[4], function(row)
  if ARGS[5] and (row.state < ENDED or rows.has(row, REPLAYED)) then return false end
  if #list >= limit then return true end
  list[#list + 1] = row
end)
return {values.answers(list, ARGS[6] and 2), reached and whole(reached) or '', whole(NOW)}
