-- Targets: what the end of a job does to the jobs to which its edges lead.

local has = rows.has
local IN_ROW = {F = 'f', R = 'r', S = 's'} -- Of edges to jobs whose row should have their join.
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

-- Ends or readies a waiting job of which `failed` parents have not completed; `parent` ends it.
local function act(row, failed, parent, how)
  if not row or row.state ~= WAITING then return end
  if parent then
    end_with(row, parent, how)
  elseif failed == 0 and has(row, ENDS_WITH_PARENTS) then
    end_with_parents(row)
  else
    targets.ready(row, 'join:')
  end
end

-- Counts the end of the one parent of a job, whose join is in its row.
local function tell_row(parent, how, row)
  if row.state ~= WAITING or has(row, ROW_JOIN_DONE) then return end
  local failed = parent.state ~= COMPLETED
  rows.mark(row, ROW_JOIN_DONE)
  if failed then rows.mark(row, ROW_JOIN_FAILED) end
  act(row, failed and 1 or 0, failed and how ~= 'r' and parent or nil, how)
end

-- Counts an end in a join that a job has made in its run.
local function tell_named(parent, target, name)
  local row = rows.named(target)
  local join = row and row.state < ENDED and journal.join(row, name)
  if not join or join.left == 0 then return end
  journal.count(join, parent.state ~= COMPLETED)
  if join.left == 0 then targets.ready(row, 'join:' .. name) end
end

-- Reads what these edges lead to, together: joins of parents, and the rows that have their join
-- themselves, or joins of their runs. An edge may be wrong about which of them it is.
local function load(found)
  local waiting, named, seqs = {}, {}, {}
  for at = 3, #found, 4 do
    local list = (found[at + 1] ~= '' or IN_ROW[found[at - 1]]) and named or waiting
    list[#list + 1] = found[at]
  end
  journal.load_parents(waiting)
  for _, name in ipairs(waiting) do
    if not journal.parents(name) then named[#named + 1] = name end
  end
  rows.find(named)
  for _, name in ipairs(named) do seqs[#seqs + 1] = rows.seq_of(name) end
  rows.load(seqs)
end

-- Follows these edges, as `take` of lib_joins lists them.
function targets.follow(found)
  local todo, seqs = {}, {}
  load(found)
  for at = 1, #found, 4 do
    local parent, how, name, join = found[at], found[at + 1], found[at + 2], found[at + 3]
    if join ~= '' then
      tell_named(parent, name, join)
    else
      local row = (IN_ROW[how] or not journal.parents(name)) and rows.named(name)
      how = IN_ROW[how] or how
      if row and has(row, ROW_JOIN) then
        tell_row(parent, how, row)
      elseif not row or has(row, PARENTS) then
        tell(parent, how, name, todo)
      end
    end
  end
  for at, one in ipairs(todo) do seqs[at] = one[1] end
  rows.load(seqs)
  for _, one in ipairs(todo) do act(rows.get(one[1]), one[2].failed, one[3], one[4]) end
end
