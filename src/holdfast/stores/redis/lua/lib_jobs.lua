-- Jobs: where each stands by its state, and what its end means. `layout.py` draws the places.

local function ages_key(row) return key('ages:' .. row.tenant .. '\0' .. row.queue) end

-- Stands in no line: it is past its time to live, and upkeep's to fail.
local function stand_aside(row)
  mark(row, LATE)
  mark(row, AGED)
  zput(ages_key(row), row.seq, row.run_at)
  row.dirty = true
end

-- Puts an enqueued job into its line, or before it where its group is gated.
local function enter_line(row)
  if row.expires > 0 and row.expires <= NOW then
    stand_aside(row)
    return
  end
  if gates.gated(row.tenant, row.group, row.queue) then
    groups.line_up(row)
  else
    lines.push(row)
  end
  -- The age of a line is read off its head, except for those that this is wrong for.
  if row.run_at ~= row.created or has(row, GATED) then
    mark(row, AGED)
    zput(ages_key(row), row.seq, row.run_at)
  end
end

local function leave_line(row)
  if row.group then groups.forget_line(row) elseif not has(row, LATE) then lines.drop(row) end
  if has(row, AGED) then
    unmark(row, AGED)
    zdrop(ages_key(row), row.seq)
  end
  unmark(row, LATE)
end

function groups.forget_line(row)
  if not has(row, LATE) and not has(row, GATED) then lines.drop(row) end
  groups.forget(row)
end

-- After its lease it is upkeep's to fail, or anybody's to claim again.
function jobs.held_key(row) return row.attempt >= row.max_attempts and SPENT or HELD end

-- Takes a row out of the place that its state gives it.
function jobs.leave(row)
  if row.packed then packs.open(row.packed) end
  local state = row.state
  if state == ENQUEUED then
    leave_line(row)
  elseif state == PROCESSING then
    zdrop(jobs.held_key(row), row.seq)
  elseif state >= ENDED then
    zdrop(DONE, row.seq)
    if state == FAILED then zdrop(key('dead:' .. row.tenant), row.seq) end
  else
    zdrop(DUE, row.seq)
  end
  if row.expires > 0 then
    zdrop(TTL, row.seq)
    zdrop(LATE_ONES, row.seq)
  end
  row.left = state
end

function jobs.keep_until(row)
  return row.updated + (row.state == FAILED and row.keep_failed or row.keep)
end

-- Puts a row into the place that its state gives it, and counts it there.
function jobs.enter(row)
  local state = row.state
  row.dirty = true
  if state == ENQUEUED then
    enter_line(row)
  elseif state == PROCESSING then
    zput(jobs.held_key(row), row.seq, row.lease)
  elseif state >= ENDED then
    zput(DONE, row.seq, jobs.keep_until(row))
    if state == FAILED then zput(key('dead:' .. row.tenant), row.seq, row.seq) end
  else
    zput(DUE, row.seq, row.run_at)
    core.wake(row.tenant .. '\0' .. row.queue) -- It may be due before what a sleeper waits for.
  end
  if row.expires > 0 and state < ENDED and state ~= PROCESSING then
    -- Its time to live counts while it waits.
    zput(row.expires <= NOW and LATE_ONES or TTL, row.seq, row.expires)
  end
  counts.move(row, row.left, state)
  row.left = nil
end

-- Takes a waiting job that is past its time to live out of its line, if it stands in one.
function jobs.retire(row)
  zdrop(TTL, row.seq)
  zput(LATE_ONES, row.seq, row.expires)
  if row.state ~= ENQUEUED or has(row, LATE) then return end
  if row.group then groups.forget_line(row) else lines.drop(row) end
  stand_aside(row)
end

-- Places an enqueued job anew, for the rules of its group have changed.
function jobs.line_up_anew(row)
  if not has(row, GATED) then lines.drop(row) end
  unmark(row, GATED)
  unmark(row, GRANTED)
  row.dirty = true
  enter_line(row)
end

-- -- keys -----------------------------------------------------------------------------------------

local function key_name(row)
  return row.tenant .. '\0' .. row.queue .. '\0' .. row.type .. '\0' .. row.key
end

local function key_hold(name)
  local text = call('HGET', key('keys'), name)
  if not text then return nil end
  local till, id = string.match(text, '^(%d*)%z(.*)$')
  return id, tonumber(till)
end

-- The id of the job that a key stands for now; nil when it is free.
function jobs.key_holder(row)
  local name = key_name(row)
  local id, till = key_hold(name)
  if not id then return nil end
  local holder = rows.named(rows.name(row.tenant, id))
  -- The id may have been pruned and used again, for a job without this key.
  if holder and holder.state < ENDED and holder.key and key_name(holder) == name then return id end
  return till and till > NOW and id or nil
end

function jobs.take_key(row)
  local name, till = key_name(row), row.key_us >= 0 and NOW + row.key_us
  call('HSET', key('keys'), name, (till and whole(till) or '') .. '\0' .. row.id)
  if till then call('ZADD', key('key_ends'), till, name) end
end

-- Frees the key of a finished job; a timed one stays until its time.
function jobs.release_key(row)
  if not row.key then return end
  local name = key_name(row)
  local id, till = key_hold(name)
  if id == row.id and (till or 0) <= NOW then call('HDEL', key('keys'), name) end
end

-- -- ends -----------------------------------------------------------------------------------------

function jobs.remove(row)
  if row.state < ENDED and row.group then groups.leaves(row) end
  if not row.left then jobs.leave(row) end
  counts.move(row, row.left, nil)
  jobs.release_key(row)
  rows.remove(row)
end

-- Ends a job that was taken out of its place: its key is free, its record stays for its keeping, or
-- goes at once.
function jobs.finish(row)
  row.updated = NOW
  if row.group then groups.leaves(row) end
  if jobs.keep_until(row) <= NOW then
    jobs.remove(row)
  else
    jobs.release_key(row)
    jobs.enter(row)
  end
  core.over(row.tenant, row.id)
end
