-- wait: {tenants or nil, queues or nil, {tenant, id} or nil} -> microseconds until the caller
-- should look again; 0 if there is work now or the job has ended, -1 if nothing is known. Reads
-- only.
--
-- In a shard of several, while the platform has settings, the answer is {the same, 1 if there are
-- lines to claim from, scopes at which anything waits}: the home knows whether they have room.

if ARGS[3] then
  local row = rows.named(rows.name(ARGS[3][1], ARGS[3][2]))
  return (not row or row.state >= ENDED) and '0' or '-1'
end
if heads.looks > 0 or heads.releasing > 0 then return '0' end -- A claim may find more than is known.
local limited = is_limited()
local is_shared = limited and SHARDS > 1
if not is_shared and (not limited or platform.room_now(WHOLE_STORE) > 0) then
  if fairness.any(ARGS[1], ARGS[2]) then return '0' end
  if limited and resume.any(ARGS[1], ARGS[2]) then return '0' end
end
local first = nil
for _, name in ipairs({'due', 'held', 'reopen'}) do
  local head = call('ZRANGE', key(name), 0, 0, 'WITHSCORES')
  local at = tonumber(head[2])
  if at and (not first or at < first) then first = at end
end
first = first and whole(math.max(0, first - NOW)) or '-1'
if not is_shared then return first end
return {first, fairness.any(ARGS[1], ARGS[2]) and 1 or 0, resume.waiting(ARGS[1], ARGS[2])}
