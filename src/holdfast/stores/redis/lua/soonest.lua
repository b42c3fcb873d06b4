-- soonest: {tenants or nil, queues or nil, job or nil} -> microseconds until something known will be
-- worth a look; 0 when it already is, -1 when nothing is known. Reads only.

if ARGS[3] then
  local row = rows.named(rows.name(ARGS[3][1], ARGS[3][2]))
  return (not row or row.state >= ENDED) and '0' or '-1'
end
if lines.any(ARGS[1], ARGS[2]) then return '0' end
local first = nil
for _, name in ipairs({'due', 'held', 'reopen'}) do
  local head = call('ZRANGE', key(name), 0, 0, 'WITHSCORES')
  local at = tonumber(head[2])
  if at and (not first or at < first) then first = at end
end
return first and whole(math.max(0, first - NOW)) or '-1'
