-- recount: {} -> by how many running jobs the counts of queues were wrong; they are right now. Up
-- to RECOUNT_MAX jobs are all counted; in a larger shard only the running ones are.

local RECOUNT_MAX = 20000

local function zeros() return {0, 0, 0, 0, 0, 0, 0, 0, 0} end

local function add(sums, kind, row, part)
  local name = counts.name(kind, row.tenant, part)
  local sum = sums[name] or zeros()
  sums[name] = sum
  sum[row.state] = sum[row.state] + 1
  if kind == 't' and row.state < ENDED then sum[BYTES] = sum[BYTES] + counts.bytes(row) end
end

local function count(seqs, sums)
  for _, row in ipairs(rows.list(seqs)) do
    add(sums, 'q', row, row.queue)
    add(sums, 't', row, '')
    if row.group then add(sums, 'g', row, row.group) end
  end
end

-- Corrects the counts of all scopes. Returns by how many running jobs those of queues were wrong.
local function correct(sums, first, last)
  local off = 0
  for _, kind in ipairs({'t', 'q', 'g'}) do
    for _, part in ipairs(call('ZRANGE', key('scopes:' .. kind), 0, -1)) do
      local tenant, name = string.match(part, '^([^%z]*)%z(.*)$')
      local record, sum = counts.of(kind, tenant, name), sums[kind .. '\0' .. part] or zeros()
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

base.insist()
local sums, off = {}, 0
if call('HLEN', key('rows')) <= RECOUNT_MAX then
  count(call('HKEYS', key('rows')), sums)
  off = correct(sums, WAITING, BYTES)
else
  count(call('ZRANGE', key('held'), 0, -1), sums)
  count(call('ZRANGE', key('spent'), 0, -1), sums)
  off = correct(sums, PROCESSING, PROCESSING)
end
if heads.platform > 0 then platform.recount() end
base.finish()
return off
