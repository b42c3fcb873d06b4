-- events: {after, limit} -> {floor, horizon, entry, ...}. Reads only. Cursors up to the floor were
-- pruned; whatever is stored later has a cursor above the horizon. An entry is {id, {'a', at, 'n',
-- number of events, 'e', events in msgpack}}; see lib_events.

local ENTRIES_MAX = 2000

local after, limit = ARGS[1], ARGS[2]
local answer = {whole(heads.floor), whole(math.max(heads.cursor, slot_of(SERVER_NOW) - 1))}
if after < 0 then return answer end
local found, from = 0, '(' .. whole(math.max(after, heads.floor)) .. '-0'
while found <= limit and #answer < ENTRIES_MAX do
  local entries = call('XRANGE', key('events'), from, '+', 'COUNT', 20)
  if #entries == 0 then break end
  for _, entry in ipairs(entries) do
    answer[#answer + 1] = entry
    found = found + tonumber(entry[2][4])
    from = '(' .. entry[1]
    if found > limit then break end
  end
end
return answer
