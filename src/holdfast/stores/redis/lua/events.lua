-- events: {after, limit, at least or nil} -> {floor, horizon, entry, ...}. Whatever is stored later
-- has a cursor above the horizon. `at least` raises it to that, for a reader of several shards.
-- An entry is {id, {'a', at, 'n', facts, 'e', packed}}.

local ENTRIES_MAX = 2000

local after, limit, least = ARGS[1], ARGS[2], ARGS[3]
if least and least > heads.cursor then
  core.set_head('cursor', least)
  core.insist()
  core.finish()
end
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
