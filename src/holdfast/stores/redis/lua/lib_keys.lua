-- Idempotency keys: tenant, queue, type and key -> the id of the job, and until when it is held.
-- A key without an end is held while its job has not ended (policy `until_terminal`).

local KEYS_OF, ENDS = key('keys'), key('key_ends')

local stored = {} -- By name: keys as they were read, or as this call leaves them; false if free.

local function name_of(row)
  return row.tenant .. '\0' .. row.queue .. '\0' .. row.type .. '\0' .. row.key
end

-- The id that a key stands for, and its end if it has one; nil if the key is free.
local function read(name)
  if stored[name] == nil then stored[name] = call('HGET', KEYS_OF, name) end
  local text = stored[name]
  if not text then return nil end
  local till, id = string.match(text, '^(%d*)%z(.*)$')
  return id, tonumber(till)
end

-- The id of the job that holds the key of a new job; nil if the key is free. `in_batch`: jobs by
-- name that this call created and has not written yet.
function keys.holder(row, in_batch)
  local name = name_of(row)
  local id, till = read(name)
  if not id then return nil end
  local its_name = rows.name(row.tenant, id)
  local holder = in_batch[its_name] or rows.named(its_name)
  -- The id may have been pruned and used again by a job without this key.
  if holder and holder.state < ENDED and holder.key and name_of(holder) == name then return id end
  return till and till > NOW and id or nil
end

local function till_of(row) return row.key_us >= 0 and NOW + row.key_us end

-- Lets a new job hold its key for the rest of this call.
function keys.hold(row)
  local till = till_of(row)
  stored[name_of(row)] = (till and whole(till) or '') .. '\0' .. row.id
end

-- Writes the key that a new job holds.
function keys.take(row)
  local name, till = name_of(row), till_of(row)
  hput(KEYS_OF, name, stored[name])
  if till then zput(ENDS, name, till) end
end

-- Frees the key of a job that ended; a timed key is held until its time.
function keys.release(row)
  local name = name_of(row)
  local id, till = read(name)
  if id == row.id and (till or 0) <= NOW then
    hput(KEYS_OF, name, false)
    stored[name] = false
  end
end

-- Deletes timed keys whose time has passed, at most `limit`; returns how many. If the job has not
-- ended, its key stays without an end.
function keys.prune(limit)
  local past = call('ZRANGEBYSCORE', ENDS, '-inf', whole(NOW), 'LIMIT', 0, limit)
  for _, name in ipairs(past) do
    local id, till = read(name)
    if id and till and till <= NOW then
      local row = rows.named(rows.name(string.match(name, '^([^%z]*)%z'), id))
      if row and row.state < ENDED and row.key then
        hput(KEYS_OF, name, '\0' .. id)
      else
        hput(KEYS_OF, name, false)
      end
    end
    zdrop(ENDS, name)
  end
  return #past
end
