-- recount: {} -> by how many held jobs the counts of queues were off. Held jobs are counted one by
-- one; all others too where there are not too many to do so in one step.

local RECOUNT_MAX = 20000

local function scopes_of(row)
  local found = {{'q', row.tenant, row.queue}, {'t', row.tenant, ''}}
  if row.group then found[3] = {'g', row.tenant, row.group} end
  return found
end

local function counted(seqs, sums)
  for _, row in ipairs(rows.list(seqs)) do
    for _, scope in ipairs(scopes_of(row)) do
      local name = counts.name(unpack(scope))
      local sum = sums[name] or {0, 0, 0, 0, 0, 0, 0, 0, 0}
      sums[name] = sum
      sum[row.state] = sum[row.state] + 1
      if scope[1] == 't' and row.state < ENDED then sum[BYTES] = sum[BYTES] + row.size end
    end
  end
end

-- Sets what was counted in the records of all scopes; returns by how much those of queues were off.
local function mend(sums, first, last)
  local off = 0
  for _, kind in ipairs({'t', 'q', 'g'}) do
    for _, part in ipairs(call('ZRANGE', key('scopes:' .. kind), 0, -1)) do
      local tenant, name = string.match(part, '^([^%z]*)%z(.*)$')
      local record = counts.of(kind, tenant, name)
      local sum = sums[kind .. '\0' .. part] or {0, 0, 0, 0, 0, 0, 0, 0, 0}
      if kind == 'q' then off = off + math.abs(record[PROCESSING] - sum[PROCESSING]) end
      for state = first, last do
        if record[state] ~= sum[state] then
          record[state] = sum[state]
          record.dirty = true
          lines.touch_tenant(tenant)
          if kind == 'q' then lines.touch(tenant, name) end
          if kind == 'g' then groups.touch(tenant, name) end
        end
      end
    end
  end
  return off
end

core.insist()
local sums, off = {}, 0
if call('HLEN', ROWS) + PACK_MAX * call('HLEN', key('loads')) <= RECOUNT_MAX then
  counted(call('HKEYS', ROWS), sums)
  for _, seq in ipairs(call('HKEYS', key('loads'))) do
    local seqs = {}
    for index, row in ipairs(packs.rows(packs.get(seq))) do seqs[index] = row.seq end
    counted(seqs, sums)
  end
  off = mend(sums, WAITING, BYTES)
else
  for _, name in ipairs({'held', 'spent'}) do 
    counted(packs.spread(call('ZRANGE', key(name), 0, -1), UNLIMITED), sums)
  end
  off = mend(sums, PROCESSING, PROCESSING)
end
core.finish()
return off
