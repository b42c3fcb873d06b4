-- Sources and the rows of their shadows: a step of a source, in the call that enqueues its jobs.
--
-- A step is {tenant, source, stamp it expects, new stamp, whether it deletes the source, sizes of
-- the rows to put, number of rows to drop, most rows, most bytes, most sources}. Its texts follow
-- those of the jobs: the state, id and packed row of each put, the ids to drop.
--
-- A source is stamp \0 size \0 state. A row is size \0 instant \0 what Python packed.

local function sources_of(tenant) return key('sources:' .. tenant) end
local function rows_of(name) return key('shadow:' .. name) end
local function ids_of(name) return key('shadow_ids:' .. name) end

local function name_of(step) return step[1] .. '\0' .. step[2] end

-- What a source is stored as: its stamp, the bytes of its rows and its state; nil without it.
function shadow.parts(text)
  if not text then return nil end
  local stamp, size, state = string.match(text, '^([^%z]*)%z(%d+)%z(.*)$')
  return stamp, tonumber(size), state
end

function shadow.read(tenant, source) return shadow.parts(call('HGET', sources_of(tenant), source)) end

function shadow.names(tenant)
  local names = call('HKEYS', sources_of(tenant))
  table.sort(names)
  return names
end

function shadow.count(tenant, source) return call('HLEN', rows_of(tenant .. '\0' .. source)) end

-- The rows of these ids, as they are stored; false where there is none.
function shadow.rows(tenant, source, ids)
  return base.fetch('HMGET', rows_of(tenant .. '\0' .. source), ids)
end

-- The next ids after one, in the order of their bytes.
function shadow.page(tenant, source, after, limit)
  return call('ZRANGEBYLEX', ids_of(tenant .. '\0' .. source), '(' .. after, '+', 'LIMIT', 0, limit)
end

-- The ids that a step puts, then those that it drops.
local function ids_in(step, first)
  local ids, puts = {}, #step[6]
  for at = 1, puts do ids[at] = ARGV[first + 2 * at - 1] end
  for at = 1, step[7] do ids[puts + at] = ARGV[first + 2 * puts + at] end
  return ids
end

-- Why the step is not applied: 'repeat', 'stale', or what there would be too much of, and how much;
-- nil if it is. `first` is where its texts begin.
function shadow.refusal(step, first)
  local tenant, source = step[1], step[2]
  local stamp, size = shadow.read(tenant, source)
  if stamp == step[4] or (not stamp and step[5]) then return 'repeat', 0 end
  if (stamp or '') ~= step[3] then return 'stale', 0 end
  local ids, puts = ids_in(step, first), #step[6]
  local number = shadow.count(tenant, source)
  size = size or 0
  for at, text in ipairs(shadow.rows(tenant, source, ids)) do
    if text then size = size - tonumber(string.match(text, '^(%d+)')) end
    if at <= puts then
      size = size + step[6][at]
      if not text then number = number + 1 end
    elseif text then
      number = number - 1
    end
  end
  step.size = size
  if step[5] then
    if number > 0 then return 'rows', number end
    return nil
  end
  if number > step[8] then return 'objects', number end
  if size > step[9] then return 'bytes', size end
  if not stamp then
    local others = call('HLEN', sources_of(tenant))
    if others + 1 > step[10] then return 'sources', others + 1 end
  end
  return nil
end

-- Adds what the step writes to the changes of the call.
function shadow.apply(step, first)
  local name, puts = name_of(step), #step[6]
  local state = ARGV[first]
  hput(sources_of(step[1]), step[2],
    not step[5] and step[4] .. '\0' .. whole(step.size) .. '\0' .. state)
  for at = 1, puts do
    local id, row = ARGV[first + 2 * at - 1], ARGV[first + 2 * at]
    hput(rows_of(name), id, whole(step[6][at]) .. '\0' .. whole(NOW) .. '\0' .. row)
    zput(ids_of(name), id, 0)
  end
  for at = 1, step[7] do
    local id = ARGV[first + 2 * puts + at]
    hput(rows_of(name), id, false)
    zdrop(ids_of(name), id)
  end
end
