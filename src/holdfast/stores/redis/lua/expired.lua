-- expired: {limit} -> {the instant, {overdue, token or '', row as told}, ...} for jobs past their
-- lease or time to live, the longest overdue first. Reads only.

local limit, found = ARGS[1], {}

local function add(name, with_token)
  local before = #found
  local late = call('ZRANGEBYSCORE', key(name), '-inf', whole(NOW), 'WITHSCORES', 'LIMIT', 0, limit)
  for index = 1, #late, 2 do
    if #found - before >= limit then break end
    for _, seq in ipairs(packs.spread({late[index]}, 1)) do
      found[#found + 1] = {seq, NOW - tonumber(late[index + 1]), with_token}
    end
  end
end
add('spent', true)
add('held', true)
add('ttl', false)
add('late', false)
table.sort(found, function(one, other) return one[2] > other[2] end)
for index = #found, limit + 1, -1 do found[index] = nil end

local seqs, list = {}, {}
for index, one in ipairs(found) do seqs[index] = one[1] end
rows.load(seqs)
for index, seq in ipairs(seqs) do list[index] = rows.get(seq) end
local answer = {whole(NOW)}
for index, told in ipairs(rows.told(list)) do
  answer[index + 1] = {
    whole(found[index][2]), found[index][3] and rules.token(list[index]) or '', told,
  }
end
return answer
