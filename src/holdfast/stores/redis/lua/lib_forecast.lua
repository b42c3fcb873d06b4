-- Forecast: what a tenant could start, for a claim over several shards while the platform has
-- settings. The first step of the claim asks, and sets aside what has no room (lib_aside).
--
-- A class is {number, queue, scope, ...}: so many jobs of a line, the first ones that were not named
-- before, need room in these scopes. The claim takes as many of each line as were meant of them.

local LINES_MAX = 64 -- Lines of a tenant that are looked at.
local PASSED_MAX = 10000 -- Jobs of excluded groups that one look at a line passes over.

local aside_left = ASIDE_MAX -- Lines and jobs that this claim may set aside.

-- Adds jobs to the classes of a tenant, those before them in the same class.
local function add(classes, number, queue, scopes)
  local last = classes[#classes]
  local is_same = last and #last == #scopes + 2 and last[2] == queue
  for at = 1, is_same and #scopes or 0 do is_same = is_same and last[at + 2] == scopes[at] end
  if is_same then
    last[1] = last[1] + number
  else
    classes[#classes + 1] = {number, queue, unpack(scopes)}
  end
end

-- Adds the jobs of a line from a rank on, up to `most`, and sets aside those whose type has no room.
-- Jobs of excluded groups are passed over. Returns how many there are, and the rank after them.
local function look_at_jobs(line, from, most, classes, excluded)
  local number, passed = 0, 0
  if from == 0 and heads.aside > 0 then resume.for_line(line, most) end
  while number < most and passed < PASSED_MAX do
    zflush(line.key)
    local seqs = call('ZRANGE', line.key, from, from + most - number - 1)
    if #seqs == 0 then break end
    from = from + #seqs
    for _, row in ipairs(rows.list(seqs)) do
      local has_no_room = platform.room('y\0\0' .. row.type) == 0 or aside.is_behind(row)
      if row.group and excluded and excluded[row.group] then
        passed = passed + 1
      elseif has_no_room and aside_left > 0 then
        aside_left, from = aside_left - 1, from - 1
        zdrop(line.key, row.seq)
        aside.set_job(row)
        lines.touch(row.tenant, row.queue)
      elseif not has_no_room then
        number = number + 1
        add(classes, 1, line.queue, platform.limited(row))
      end
    end
    groups.refresh_all()
  end
  return number, from
end

-- Looks at the jobs of a line from a rank on, up to `most`. Returns how many there are, and the rank
-- after them.
local function look_at_line(line, from, most, classes, excluded)
  local scope = 'q\0\0' .. line.queue
  if platform.room(scope) == 0 then
    if aside_left > 0 and not aside.holds(line.tenant, line.queue) then
      aside_left = aside_left - 1
      aside.set_line(line)
      turns.close(line)
    end
    return 0, from
  end
  if platform.has_types() or excluded then
    return look_at_jobs(line, from, most, classes, excluded)
  end
  zflush(line.key)
  local number, scopes = math.min(most, call('ZCARD', line.key) - from), {}
  for _, one in ipairs({WHOLE_STORE, scope}) do
    if platform.running(one) then scopes[#scopes + 1] = one end
  end
  if number > 0 then add(classes, number, line.queue, scopes) end
  return number, from + number
end

-- The classes of the jobs that a tenant could start, at most `most`; how many jobs these are, and
-- whether it has no more. Its lines are visited as in a turn: each for its share, then for the rest.
function forecast.tenant(tenant, queues, most, excluded)
  local room, number, classes = math.min(most, limits.tenant_room(tenant)), 0, {}
  local ranks, counted = {}, {}
  local found = fairness.lines(tenant, queues, LINES_MAX)
  for _, share in ipairs({fairness.line_share(room, #found), room}) do
    for at, queue in ipairs(found) do
      local its_room = limits.queue_room(tenant, queue) - (counted[at] or 0)
      local wanted, line = math.min(share, room - number, its_room), lines.of(tenant, queue)
      if wanted > 0 then
        local more
        more, ranks[at] = look_at_line(line, ranks[at] or 0, wanted, classes, excluded)
        counted[at] = (counted[at] or 0) + more
        number = number + more
      end
    end
  end
  return classes, number, #found < LINES_MAX and number < room
end

-- Whether this claim may set nothing more aside: the next one goes on.
function forecast.exhausted() return aside_left == 0 end
