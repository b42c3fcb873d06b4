-- Counts: the number of jobs of each scope in each state, and the bytes that the
-- living jobs of a tenant hold.
--
-- A scope is named by its kind (t, q, g), its tenant and its part, separated by zero bytes. A call
-- changes counts in memory by differences, and reads and writes all of them at its end in two
-- commands. Code that needs a number before that reads the scope (`counts.of`, `counts.load`).

local COUNTS = key('counts')

local known = {t = {}, q = {}, g = {}}
local all = {}

function counts.name(kind, tenant, part) return kind .. '\0' .. tenant .. '\0' .. part end

-- The record of a scope: differences, until it is read.
local function record_of(kind, tenant, part)
  local of_tenant = known[kind][tenant]
  if not of_tenant then
    of_tenant = {}
    known[kind][tenant] = of_tenant
  end
  local record = of_tenant[part]
  if not record then
    record = {0, 0, 0, 0, 0, 0, 0, 0, 0}
    record.kind, record.tenant, record.part = kind, tenant, part
    record.scope = counts.name(kind, tenant, part)
    of_tenant[part] = record
    all[#all + 1] = record
  end
  return record
end

-- Reads records that were not read yet, in one command.
local function read(records)
  local missing, scopes = {}, {}
  for _, record in ipairs(records) do
    if not record.read then
      record.read = true
      missing[#missing + 1], scopes[#scopes + 1] = record, record.scope
    end
  end
  for index, text in ipairs(base.fetch('HMGET', COUNTS, scopes)) do
    local record = missing[index]
    if text then
      local numbers = {struct.unpack(COUNTS_FORMAT, text)}
      for at = 1, BYTES do record[at] = record[at] + numbers[at] end
    else
      record.new = true
    end
  end
end

-- The current counts of a scope.
function counts.of(kind, tenant, part)
  local record = record_of(kind, tenant, part)
  if not record.read then read({record}) end
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

local last_tenant, last_queue, of_last_queue, of_last_tenant -- Most jobs of a batch share a line.

-- The bytes that a job holds while it lives.
function counts.bytes(row)
  return row.size + (rows.has(row, JOURNAL) and sizes.bytes(row) or 0)
end

-- Counts bytes that the journal of a living job holds besides those it had.
function counts.grow(row, bytes)
  local record = record_of('t', row.tenant, '')
  record[BYTES], record.dirty = record[BYTES] + bytes, true
end

-- Moves a row from the count of one state to that of another; nil is none. Lines and groups whose
-- room may have changed are checked at the end of the call.
function counts.move(row, from, to)
  if from == to then return end
  local tenant, queue, group = row.tenant, row.queue, row.group
  if tenant ~= last_tenant or queue ~= last_queue then
    last_tenant, last_queue = tenant, queue
    of_last_queue, of_last_tenant = record_of('q', tenant, queue), record_of('t', tenant, '')
  end
  local of_tenant = of_last_tenant
  add(of_last_queue, from, to)
  add(of_tenant, from, to)
  local lived, lives = from and from < ENDED, to and to < ENDED
  if lived and not lives then
    of_tenant[BYTES] = of_tenant[BYTES] - counts.bytes(row)
  elseif lives and not lived then
    of_tenant[BYTES] = of_tenant[BYTES] + counts.bytes(row)
  end
  if group then add(record_of('g', tenant, group), from, to) end
  if (from == PROCESSING or to == PROCESSING) and is_limited() then
    platform.count(row, to == PROCESSING and 1 or -1)
  end
  if has_settings(tenant) then
    if from == PROCESSING or to == PROCESSING then
      lines.touch(tenant, queue)
      lines.touch_tenant(tenant)
    end
    if group and lived and to ~= PROCESSING then groups.touch(tenant, group) end
  end
end

-- Lists a scope although it has no jobs, because it has slots.
function counts.list(kind, tenant, part)
  local record = counts.of(kind, tenant, part)
  if record.new then record.dirty = true end
end

function counts.save()
  local dirty = {}
  for _, record in ipairs(all) do
    if record.dirty then dirty[#dirty + 1] = record end
  end
  read(dirty)
  for _, record in ipairs(dirty) do
    hput(COUNTS, record.scope, struct.pack(COUNTS_FORMAT, record[1], record[2], record[3],
      record[4], record[5], record[6], record[7], record[8], record[9]))
    if record.new then
      zput(key('scopes:' .. record.kind), record.tenant .. '\0' .. record.part, 0)
    end
    record.dirty, record.new = false, false
  end
end

-- Deletes the counts of a scope that has neither jobs nor slots.
function counts.forget(record)
  zdrop(key('scopes:' .. record.kind), record.tenant .. '\0' .. record.part)
  hput(COUNTS, record.scope, false)
  if record.kind ~= 't' then return end
  if heads.aside > 0 then turns.forget(record.tenant) end
  if heads.tiers > 0 then relook.release(record.tenant) end
end
