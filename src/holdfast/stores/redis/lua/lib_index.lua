-- The index entries of a job by its state, and what happens when it ends. layout.py lists them.

local has, mark, unmark = rows.has, rows.mark, rows.unmark
local TTL, LATE_JOBS, DONE = key('ttl'), key('late'), key('done')
local HELD, SPENT, DUE = key('held'), key('spent'), key('due')

local function ages_key(row) return key('ages:' .. row.tenant .. '\0' .. row.queue) end

-- Stores since when a job is ready that its line does not tell.
function index.keep_age(row)
  if has(row, AGED) then return end
  mark(row, AGED)
  zput(ages_key(row), row.seq, row.run_at)
  row.dirty = true
end

-- A job past its time to live is in no line: the upkeep will fail it.
local function set_aside(row)
  mark(row, LATE)
  row.dirty = true
  index.keep_age(row)
end

-- Puts a ready job into its line, or into its group if the group is limited. Jobs that waited at a
-- limit of the platform come back by this alone. Returns whether it is in its line.
function index.let_in(row)
  if row.group and limits.limits_group(row.tenant, row.group, row.queue) then
    groups.wait(row)
    return false
  end
  lines.push(row)
  return true
end

-- Puts an enqueued job where it waits.
local function enter_line(row)
  if row.expires > 0 and row.expires <= NOW then
    set_aside(row)
    return
  end
  index.let_in(row)
  -- The age of a line is that of its first job, except for jobs that became ready otherwise.
  if row.run_at ~= row.created or has(row, WAITS) then index.keep_age(row) end
end

local function leave_line(row)
  if not has(row, LATE) and not has(row, WAITS) then lines.drop(row) end
  if row.group then groups.forget(row) end
  index.forget_age(row)
  unmark(row, LATE)
end

function index.forget_age(row)
  if not has(row, AGED) then return end
  unmark(row, AGED)
  zdrop(ages_key(row), row.seq)
end

-- The set of a leased job: when its lease expires it is claimed again (held), or has no attempts
-- left and is failed by the upkeep (spent).
local function lease_key(row) return row.attempt >= row.max_attempts and SPENT or HELD end

-- Removes the index entries that a row has by its state.
function index.remove(row)
  local state = row.state
  if state == ENQUEUED then
    leave_line(row)
  elseif state == PROCESSING then
    zdrop(lease_key(row), row.seq)
  elseif state >= ENDED then
    zdrop(DONE, row.seq)
    if state == FAILED then zdrop(key('dead:' .. row.tenant), row.seq) end
  elseif state ~= WAITING then
    zdrop(DUE, row.seq)
  end
  if row.expires > 0 then
    zdrop(TTL, row.seq)
    zdrop(LATE_JOBS, row.seq)
  end
  row.left = state
end

-- Adds the index entries that a row has by its state, and counts it.
function index.add(row)
  local state = row.state
  row.dirty = true
  if state == ENQUEUED then
    enter_line(row)
  elseif state == PROCESSING then
    zput(lease_key(row), row.seq, row.lease)
  elseif state >= ENDED then
    zput(DONE, row.seq, row.updated + (state == FAILED and row.keep_failed or row.keep))
    if state == FAILED then zput(key('dead:' .. row.tenant), row.seq, row.seq) end
  elseif state ~= WAITING then
    zput(DUE, row.seq, row.run_at)
    base.wake(row.tenant .. '\0' .. row.queue) -- A sleeper may have to wake earlier now.
  end
  if row.expires > 0 and state < ENDED and state ~= PROCESSING then
    -- The time to live counts while the job waits.
    zput(row.expires <= NOW and LATE_JOBS or TTL, row.seq, row.expires)
  end
  counts.move(row, row.left, state)
  row.left = nil
end

-- Adds a new job.
function index.insert(row, body)
  row.seq = wide(base.tick('seq'))
  events.drop_tail(rows.name_of(row), row.last)
  rows.add(row, body)
  if row.group then groups.join(row) end
  index.add(row)
  events.note('enqueued', row, row.run_at > NOW and row.run_at or nil)
end

-- Takes a waiting job that is past its time to live out of its line, if it is in one.
function index.expire(row)
  zdrop(TTL, row.seq)
  zput(LATE_JOBS, row.seq, row.expires)
  if row.state ~= ENQUEUED or has(row, LATE) then return end
  if not has(row, WAITS) then lines.drop(row) end
  if row.group then groups.forget(row) end
  set_aside(row)
end

-- Adds an enqueued job again, after the settings of its group changed.
function index.requeue(row)
  if not has(row, WAITS) then lines.drop(row) end
  unmark(row, WAITS)
  unmark(row, GRANTED)
  row.dirty = true
  enter_line(row)
end

-- Deletes a job and all its index entries.
function index.delete(row)
  if row.state < ENDED and row.group then groups.leave(row) end
  if row.state < ENDED and has(row, EDGES) then joins.ended(row, 0) end
  if not row.left then index.remove(row) end
  counts.move(row, row.left, nil)
  if row.key then keys.release(row) end
  rows.remove(row)
end

-- Ends a job whose index entries were removed: frees its key, and keeps or deletes its record. That
-- of a job with edges is kept until `prune`, which looks whether others still need its result.
function index.finish(row)
  row.updated = NOW
  if row.left == WAITING then journal.close(row) end
  if row.group then groups.leave(row) end
  local has_edges = has(row, EDGES)
  if has_edges then joins.ended(row, row.state) end
  if (row.state == FAILED and row.keep_failed or row.keep) <= 0 and not has_edges then
    index.delete(row)
  else
    if row.key then keys.release(row) end
    index.add(row)
  end
  base.ended(row.tenant, row.id)
end
