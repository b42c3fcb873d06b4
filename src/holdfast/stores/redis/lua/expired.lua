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

local seqs, by_seq = {}, {}
for index, one in ipairs(found) do
  seqs[index] = one[1]
  by_seq[one[1]] = one
end
local list, answer = rows.list(seqs), {whole(NOW)}
for index, told in ipairs(rows.told(list)) do
  local one = by_seq[list[index].seq]
  answer[index + 1] = {whole(one[2]), one[3] and rules.token(list[index]) or '', told}
end
return answer
