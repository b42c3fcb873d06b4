-- wait: {tenants or nil, queues or nil, {tenant, id} or nil} -> microseconds until the caller
-- should look again; 0 if there is work now or the job has ended, -1 if nothing is known. Reads
-- only.

if ARGS[3] then
  local row = rows.named(rows.name(ARGS[3][1], ARGS[3][2]))
  return (not row or row.state >= ENDED) and '0' or '-1'
end
if heads.looks > 0 then return '0' end -- A claim may find more than is known.
local limited = is_limited()
if not limited or platform.room_now(WHOLE_STORE) > 0 then
  if fairness.any(ARGS[1], ARGS[2]) then return '0' end
  if limited and resume.any(ARGS[1], ARGS[2]) then return '0' end
end
local first = nil
for _, name in ipairs({'due', 'held', 'reopen'}) do
  local head = call('ZRANGE', key(name), 0, 0, 'WITHSCORES')
  local at = tonumber(head[2])
  if at and (not first or at < first) then first = at end
end
return first and whole(math.max(0, first - NOW)) or '-1'
