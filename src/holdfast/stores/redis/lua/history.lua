-- history: {tenant, id, after} -> {floor, horizon, {cursor, at, fact}, ...}: the facts about one
-- name, the newest first, found by following each to the one before it.

local FACTS_MAX = 10000

-- The fact of a place in an entry, counted from its end: 0 is the last.
local function fact_at(facts, back)
  local at = #facts - FACT_SIZE
  while true do
    local number, kind = string.match(facts[at + 1], '^%*(%d+):(.*)$')
    number = tonumber(number or '1')
    if back < number then
      local fact = {unpack(facts, at + 1, at + FACT_SIZE)}
      if kind then
        local place, width = number - 1 - back, #fact[3] / number
        fact[1], fact[3] = kind, string.sub(fact[3], place * width + 1, (place + 1) * width)
        if fact[FACT_SIZE] > 0 then fact[FACT_SIZE] = fact[FACT_SIZE] + place * SHARDS end
      end
      return fact
    end
    back, at = back - number, at - FACT_SIZE
  end
end

local after = ARGS[3]
local answer = {whole(heads.floor), whole(math.max(heads.cursor, slot_of(SERVER_NOW) - 1))}
local name = rows.name(ARGS[1], ARGS[2])
local row = rows.named(name)
local cursor = row and row.last or log.tails({name})[1]
while cursor > after and cursor > heads.floor and #answer < FACTS_MAX do
  local entry = call('XRANGE', key('events'), whole(cursor) .. '-0', '+', 'COUNT', 1)[1]
  if not entry then break end
  local last = tonumber(string.match(entry[1], '^%d+'))
  local fact = fact_at(cmsgpack.unpack(entry[2][6]), (last - cursor) / SHARDS)
  if fact[2] ~= ARGS[1] or fact[3] ~= ARGS[2] then break end
  answer[#answer + 1] = {whole(cursor), entry[2][2], cmsgpack.pack(fact)}
  cursor = fact[FACT_SIZE]
end
return answer
