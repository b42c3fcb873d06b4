-- Gathered writes: a script collects its changes of sorted sets and hashes in memory and sends them
-- at its end, so that a batch costs one command for each key. The last change of a member counts.
-- Code that reads a key flushes the pending changes of that key first.

local ARGS_MAX = 4000 -- Values of one command; Lua's stack holds 8000.
local HINTS_MAX = 64  -- Lines and jobs that one hint names.

local settings_changed = false -- Set when this call changes settings.

-- Whether a tenant, its queues or its groups have settings, or had some before this call.
local function has_settings(tenant)
  return (heads.rules > 0 or settings_changed) and limits.has_settings(tenant)
end

-- Whether the platform has settings, or something still waits at limits that it had.
local function is_limited() return heads.platform > 0 or heads.aside > 0 end

local pending_sets, pending_hashes = {}, {}

local function zput(name, member, score)
  local set = pending_sets[name]
  if not set then
    set = {}
    pending_sets[name] = set
  end
  set[member] = score
end

local function zdrop(name, member) zput(name, member, false) end

local function hput(name, field, value)
  local hash = pending_hashes[name]
  if not hash then
    hash = {}
    pending_hashes[name] = hash
  end
  hash[field] = value
end

-- Sends one command with many values, in several parts if there are too many for one.
function base.send(command, name, values)
  local count = values and #values or 0
  if count == 0 then return end
  if count <= ARGS_MAX then
    call(command, name, unpack(values))
    return
  end
  for first = 1, count, ARGS_MAX do
    call(command, name, unpack(values, first, math.min(first + ARGS_MAX - 1, count)))
  end
end

-- The values of many fields (HMGET) or the scores of many members (ZMSCORE), false where missing.
function base.fetch(command, name, fields)
  local count, found = #fields, {}
  if count == 0 then return found end
  if count <= ARGS_MAX then return call(command, name, unpack(fields)) end
  for first = 1, count, ARGS_MAX do
    local last = math.min(first + ARGS_MAX - 1, count)
    local part = call(command, name, unpack(fields, first, last))
    for index = 1, last - first + 1 do found[first + index - 1] = part[index] end
  end
  return found
end

-- Sends the pending changes of a sorted set. Returns whether members were added.
local function zflush(name)
  local set = pending_sets[name]
  if not set then return false end
  pending_sets[name] = nil
  local added, dropped, a, d = {}, {}, 0, 0
  local last, text -- Many members have the same score: it is formatted once.
  for member, score in pairs(set) do
    if score then
      if score ~= last then
        last = score
        text = type(score) == 'number' and whole(score) or score
      end
      added[a + 1], added[a + 2] = text, member
      a = a + 2
    else
      d = d + 1
      dropped[d] = member
    end
  end
  base.send('ZADD', name, added)
  base.send('ZREM', name, dropped)
  return a > 0
end

local function hflush(name)
  local hash = pending_hashes[name]
  if not hash then return end
  pending_hashes[name] = nil
  local added, dropped, a, d = {}, {}, 0, 0
  for field, value in pairs(hash) do
    if value then
      added[a + 1], added[a + 2] = field, value
      a = a + 2
    else
      d = d + 1
      dropped[d] = field
    end
  end
  base.send('HSET', name, added)
  base.send('HDEL', name, dropped)
end

-- Hints for sleeping workers and waiting callers: lines with new work, and jobs that ended.

local woken, woken_count, ended, ended_count = {}, 0, {}, 0

function base.wake(line)
  if not woken[line] then
    woken[line] = true
    woken_count = woken_count + 1
  end
end

function base.wake_all() woken_count = HINTS_MAX + 1 end

function base.ended(tenant, id)
  ended_count = ended_count + 1
  if ended_count <= HINTS_MAX then ended[ended_count] = {tenant, id} end
end

local function publish()
  if woken_count > 0 and is_limited() and platform.is_full() then
    woken, woken_count = {}, 0 -- Nobody can claim.
  end
  if woken_count == 0 and ended_count == 0 then return end
  local names = {}
  if woken_count <= HINTS_MAX then
    for line in pairs(woken) do names[#names + 1] = line end
  end
  call('PUBLISH', string.sub(ARGV[1], CHANNEL_AT), cmsgpack.pack({
    woken_count > HINTS_MAX, names, ended_count > HINTS_MAX,
    ended_count > HINTS_MAX and {} or ended,
  }))
end

-- Opens and closes lines and groups as their room is now, then sends all changes. Each script that
-- writes calls it last. A library that was not loaded has nothing to do.
function base.finish()
  if rawget(library, 'joins') then joins.release() end
  if rawget(library, 'groups') then groups.refresh_all() end
  if rawget(library, 'lines') then lines.refresh_all() end
  if rawget(library, 'ledger') then ledger.save() end
  if rawget(library, 'platform') then platform.save() end
  if rawget(library, 'relook') then relook.save() end
  if rawget(library, 'limits') then limits.save() end
  if rawget(library, 'journal') then journal.save() end
  if rawget(library, 'rows') then rows.save() end
  if rawget(library, 'counts') then counts.save() end
  if rawget(library, 'events') then events.save() end
  for name in pairs(pending_hashes) do hflush(name) end
  for name in pairs(pending_sets) do zflush(name) end
  base.save_heads()
  publish()
end

-- The values of a list as keys of a table; nil for nil.
local function set_of(list)
  if not list then return nil end
  local set = {}
  for _, value in ipairs(list) do set[value] = true end
  return set
end
