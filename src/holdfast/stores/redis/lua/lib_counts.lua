-- Counts: how many jobs of each scope are in each state, and the bytes of a tenant's live payloads.
-- Read once per call, changed in memory, written at its end.
--
-- A scope is named by its kind (t, q, g), its tenant and its part, apart by a zero byte.

local known = {t = {}, q = {}, g = {}}

function counts.name(kind, tenant, part) return kind .. '\0' .. tenant .. '\0' .. part end

local function read(kind, tenant, part)
  local scope = counts.name(kind, tenant, part)
  local text, record = call('HGET', key('counts'), scope), nil
  if text then
    record = {struct.unpack(TALLY, text)}
    record[10] = nil
  else
    record = {0, 0, 0, 0, 0, 0, 0, 0, 0}
    record.new = true
  end
  record.scope, record.part = scope, tenant .. '\0' .. part
  return record
end

function counts.of(kind, tenant, part)
  local of_tenant = known[kind][tenant]
  if not of_tenant then
    of_tenant = {}
    known[kind][tenant] = of_tenant
  end
  local record = of_tenant[part]
  if not record then
    record = read(kind, tenant, part)
    of_tenant[part] = record
  end
  return record
end

function counts.alive(record)
  return record[1] + record[2] + record[3] + record[4] + record[5]
end

local function add(record, from, to)
  if from then record[from] = record[from] - 1 end
  if to then record[to] = record[to] + 1 end
  record.dirty = true
end

-- Moves a row from one state's count to another's; nil is none. What waited for its place is
-- looked at before the end of the call.
function counts.move(row, from, to)
  if from == to then return end
  local tenant, queue, group = row.tenant, row.queue, row.group
  add(counts.of('q', tenant, queue), from, to)
  local whole_tenant = counts.of('t', tenant, '')
  add(whole_tenant, from, to)
  local lived, lives = from and from < ENDED, to and to < ENDED
  if lived and not lives then
    whole_tenant[BYTES] = whole_tenant[BYTES] - row.size
  elseif lives and not lived then
    whole_tenant[BYTES] = whole_tenant[BYTES] + row.size
  end
  if group then add(counts.of('g', tenant, group), from, to) end
  if ruled(tenant) then
    if from == PROCESSING or to == PROCESSING then
      lines.touch(tenant, queue)
      lines.touch_tenant(tenant)
    end
    if group and lived and to ~= PROCESSING then groups.touch(tenant, group) end
  end
end

-- Moves many jobs of a line from one state to another, with so many bytes; nil is none.
function counts.add(tenant, queue, from, to, number, bytes)
  if number == 0 then return end
  local whole_tenant = counts.of('t', tenant, '')
  for _, record in ipairs({counts.of('q', tenant, queue), whole_tenant}) do
    if from then record[from] = record[from] - number end
    if to then record[to] = record[to] + number end
    record.dirty = true
  end
  local lived, lives = from and from < ENDED, to and to < ENDED
  if lived and not lives then
    whole_tenant[BYTES] = whole_tenant[BYTES] - bytes
  elseif lives and not lived then
    whole_tenant[BYTES] = whole_tenant[BYTES] + bytes
  end
end

local scopes_of = {} -- By kind and tenant: how many it has, with those that this call lets in.

-- Whether a tenant that may have so many queues or groups may have jobs in this one: always, if it is
-- known. Those without jobs count until they are pruned.
function counts.admit(kind, tenant, part, most)
  local record = counts.of(kind, tenant, part)
  if not record.new or record.admitted then return true end
  local name = kind .. tenant
  local number = scopes_of[name] or call('ZLEXCOUNT', key('scopes:' .. kind),
    '[' .. tenant .. '\0', '(' .. tenant .. '\1')
  record.admitted = number < most
  scopes_of[name] = record.admitted and number + 1 or number
  return record.admitted
end

-- Makes a scope known although it has no jobs, for it has slots.
function counts.list(kind, tenant, part)
  local record = counts.of(kind, tenant, part)
  if record.new then record.dirty = true end
end

function counts.save()
  local name = key('counts')
  for kind, of_kind in pairs(known) do
    for _, of_tenant in pairs(of_kind) do
      for _, record in pairs(of_tenant) do
        if record.dirty then
          hput(name, record.scope, struct.pack(TALLY, record[1], record[2], record[3], record[4],
            record[5], record[6], record[7], record[8], record[9]))
          if record.new then zput(key('scopes:' .. kind), record.part, 0) end
          record.dirty, record.new = false, false
        end
      end
    end
  end
end
