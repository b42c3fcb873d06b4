-- find: {selection, after or nil, limit, newest first, unreplayed} -> {rows as told, where to go on
-- or '', the instant it was seen}. `unreplayed`: only what can be replayed.

local limit, list = ARGS[3], {}
local reached = walk.each(walk.selection(ARGS[1]), ARGS[2], ARGS[4], function(row)
  if ARGS[5] and (row.state < ENDED or has(row, REPLAYED)) then return false end
  if #list >= limit then return true end
  list[#list + 1] = row
end)
return {rows.told(list), reached and whole(reached) or '', whole(NOW)}
