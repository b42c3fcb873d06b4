-- history: {tenant, id, after} -> {floor, horizon, {cursor, at, fact}, ...}: the facts about one
-- name, the newest first, found by following each to the one before it.

local FACTS_MAX = 10000

local after = ARGS[3]
local answer = {whole(heads.floor), whole(math.max(heads.cursor, slot_of(SERVER_NOW) - 1))}
local name = rows.name(ARGS[1], ARGS[2])
local row = rows.named(name)
local cursor = row and row.last or tonumber(call('ZSCORE', TAILS, name) or '0')
while cursor > after and cursor > heads.floor and #answer < FACTS_MAX do
  local entry = call('XRANGE', key('events'), whole(cursor) .. '-0', '+', 'COUNT', 1)[1]
  if not entry then break end
  local last = tonumber(string.match(entry[1], '^%d+'))
  local facts = cmsgpack.unpack(entry[2][6])
  local at = #facts - FACT_SIZE * ((last - cursor) / SHARDS + 1)
  local fact = {unpack(facts, at + 1, at + FACT_SIZE)}
  if fact[2] ~= ARGS[1] or fact[3] ~= ARGS[2] then break end
  answer[#answer + 1] = {whole(cursor), entry[2][2], cmsgpack.pack(fact)}
  cursor = fact[FACT_SIZE]
end
return answer
