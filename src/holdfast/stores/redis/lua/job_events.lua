-- job_events: {tenant, id, after} -> {floor, horizon, {cursor, at, event in msgpack}, ...}: the
-- events of one job, the newest first. Each event names the one before it (lib_events). Reads only.

local EVENTS_MAX = 10000

local after = ARGS[3]
local answer = {whole(heads.floor), whole(math.max(heads.cursor, slot_of(SERVER_NOW) - 1))}
local name = rows.name(ARGS[1], ARGS[2])
local row = rows.named(name)
local cursor = row and row.last or events.tails({name})[1]
while cursor > after and cursor > heads.floor and #answer < EVENTS_MAX do
  local entry = call('XRANGE', key('events'), whole(cursor) .. '-0', '+', 'COUNT', 1)[1]
  if not entry then break end
  local last, list = tonumber(string.match(entry[1], '^%d+')), cmsgpack.unpack(entry[2][6])
  local at = #list - ((last - cursor) / SHARDS + 1) * EVENT_SIZE
  local event = {unpack(list, at + 1, at + EVENT_SIZE)}
  if event[2] ~= ARGS[1] or event[3] ~= ARGS[2] then break end
  answer[#answer + 1] = {whole(cursor), entry[2][2], cmsgpack.pack(event)}
  cursor = event[EVENT_SIZE]
end
return answer
