-- peek: {tenants or nil, queues or nil, most} -> the server's time and the first of these lines,
-- for a claim over several shards to share among them: {turn, tenant, queue, weight, credit or -1,
-- jobs it could start}. Repairs first.

core.insist()
repair.all()
local answer = {whole(SERVER_NOW)}
for _, line in ipairs(lines.open(set_of(ARGS[1]), set_of(ARGS[2]), ARGS[3])) do
  local name = line[2] .. '\0' .. line[3]
  local ready = lines.ready(name, math.min(ARGS[3], gates.line_room(line[2], line[3])))
  answer[#answer + 1] = {
    whole(line[1]), line[2], line[3], whole(gates.weight(line[2])),
    call('HGET', key('credit'), name) or '-1', whole(ready),
  }
end
core.finish()
return answer
