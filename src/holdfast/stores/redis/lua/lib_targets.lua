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
local function tell(parent, how, join, todo)
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
-- themselves, or joins of their runs. An edge may be wrong about which of them it is. Returns the
-- joins and the sequences by name.
local function load(found, size)
  local waiting, named, number, seqs = {}, {}, 0, {}
  for at = 3, size, 4 do
    if found[at + 1] ~= '' or IN_ROW[found[at - 1]] then
      number = number + 1
      named[number] = found[at]
    else
      waiting[#waiting + 1] = found[at]
    end
  end
  local joins_of = journal.load_parents(waiting)
  for at = 1, #waiting do
    if not joins_of[waiting[at]] then
      number = number + 1
      named[number] = waiting[at]
    end
  end
  local seq_of = rows.find(named)
  for at = 1, number do seqs[#seqs + 1] = seq_of[named[at]] or nil end
  rows.load(seqs)
  return joins_of, seq_of
end

-- Follows these edges, so many values as `take` of lib_joins lists them.
function targets.follow(found, size)
  local todo, seqs = {}, {}
  local joins_of, seq_of = load(found, size)
  for at = 1, size, 4 do
    local parent, how, name, join = found[at], found[at + 1], found[at + 2], found[at + 3]
    local of_row = IN_ROW[how]
    if join ~= '' then
      tell_named(parent, name, join)
    elseif not of_row and joins_of[name] then
      tell(parent, how, joins_of[name], todo)
    elseif seq_of[name] then
      local row = rows.get(seq_of[name])
      if row and has(row, ROW_JOIN) then
        tell_row(parent, of_row or how, row)
      elseif row and has(row, PARENTS) then
        tell(parent, of_row or how, journal.parents(name), todo)
      end
    end
  end
  for at, one in ipairs(todo) do seqs[at] = one[1] end
  rows.load(seqs)
  for _, one in ipairs(todo) do act(rows.get(one[1]), one[2].failed, one[3], one[4]) end
end
