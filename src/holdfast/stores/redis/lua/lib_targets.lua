-- Targets: what the end of a job does to the jobs to which its edges lead.

local has = rows.has
local WORDS = {[FAILED] = 'failed', [CANCELED] = 'was canceled'}

-- Completes a job that ends with its parents, all of which have completed.
local function end_with_parents(row)
  index.remove(row)
  row.state = COMPLETED
  index.finish(row)
  events.note('completed', row, nil, nil, true)
end

-- Makes a job ready that awaits this, which has come.
function targets.ready(row, come)
  local awaits = row.state == WAITING and 'join:'
    or row.state == SCHEDULED and values.kept(row, AWAITS)
  if awaits ~= come then return end
  index.remove(row)
  if row.state == SCHEDULED then row.run_at = math.min(row.run_at, NOW) end
  values.keep(row, AWAITS, nil)
  rows.unmark(row, ENDS_WITH_PARENTS)
  row.state, row.updated = row.run_at > NOW and SCHEDULED or ENQUEUED, NOW
  index.add(row)
  events.note('ready', row, row.run_at > NOW and row.run_at or nil, come)
end

-- Ends a waiting job because of a parent that has not completed.
local function end_with(row, parent, how)
  local why = 'its parent ' .. parent.id .. ' ' .. (WORDS[parent.state] or 'was deleted')
  local kind, note = 'canceled', why
  index.remove(row)
  values.keep(row, ERROR, why)
  if how == 's' then
    row.state = CANCELED
  else
    row.state, row.reason = FAILED, REASON_PARENT_FAILED
    kind, note = 'failed', rules.why(row)
  end
  index.finish(row)
  events.note(kind, row, nil, note, true)
end

-- Counts the end of a parent in the join of a job. If more than the number changes, it adds to a
-- list what to do: the sequence, the join, and the parent and what its failure does, if that ends
-- the job. A job is waiting as long as its join is open, so its row need not be read before.
local function tell(parent, how, name, todo)
  local join = journal.parents(name)
  local seq = join and join.left > 0 and join.seq
  if not seq then return end
  local failed = parent.state ~= COMPLETED
  journal.count(join, failed)
  if failed and how ~= 'r' then
    todo[#todo + 1] = {seq, join, parent, how}
    join.seq = false
  elseif join.left == 0 then
    todo[#todo + 1] = {seq, join}
  end
end

local function act(row, join, parent, how)
  if not row or row.state ~= WAITING then return end
  if parent then
    end_with(row, parent, how)
  elseif join.failed == 0 and has(row, ENDS_WITH_PARENTS) then
    end_with_parents(row)
  else
    targets.ready(row, 'join:')
  end
end

-- Counts an end in a join that a job has made in its run.
local function tell_named(parent, target, name)
  local row = rows.named(target)
  local join = row and row.state < ENDED and journal.join(row, name)
  if not join or join.left == 0 then return end
  journal.count(join, parent.state ~= COMPLETED)
  if join.left == 0 then targets.ready(row, 'join:' .. name) end
end

-- Follows these edges, as `take` of lib_joins lists them.
function targets.follow(found)
  local waiting, named, todo, seqs = {}, {}, {}, {}
  for at = 3, #found, 4 do
    local list = found[at + 1] == '' and waiting or named
    list[#list + 1] = found[at]
  end
  journal.load_parents(waiting)
  rows.find(named)
  for at = 1, #found, 4 do
    if found[at + 3] == '' then
      tell(found[at], found[at + 1], found[at + 2], todo)
    else
      tell_named(found[at], found[at + 2], found[at + 3])
    end
  end
  for at, one in ipairs(todo) do seqs[at] = one[1] end
  rows.load(seqs)
  for _, one in ipairs(todo) do act(rows.get(one[1]), one[2], one[3], one[4]) end
end
