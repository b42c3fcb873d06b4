-- expired: {limit} -> {the instant, {{overdue, token or ''}, ...}, rows}: jobs past their lease or
-- their time to live, the longest overdue first. Reads only.

local limit, found = ARGS[1], {}

local function add(name, with_token)
  local past = call('ZRANGEBYSCORE', key(name), '-inf', whole(NOW), 'WITHSCORES', 'LIMIT', 0, limit)
  for at = 1, #past, 2 do
    found[#found + 1] = {past[at], NOW - tonumber(past[at + 1]), with_token}
  end
end
add('spent', true)
add('held', true)
add('ttl', false)
add('late', false)
table.sort(found, function(one, other) return one[2] > other[2] end)
for at = #found, limit + 1, -1 do found[at] = nil end

local seqs, by_seq = {}, {}
for at, one in ipairs(found) do
  seqs[at] = one[1]
  by_seq[one[1]] = one
end
local list, late = rows.list(seqs), {}
for at, row in ipairs(list) do
  local one = by_seq[row.seq]
  late[at] = {whole(one[2]), one[3] and rules.token(row) or ''}
end
return {whole(NOW), late, values.answers(list)}
