-- Forecast: what a tenant could start, for a claim over several shards while the platform has
-- settings. The first step of the claim asks, and sets aside what has no room (lib_aside).
--
-- A class is {number, scope, ...}: so many jobs in a row that need room in these scopes.

local LINES_MAX = 64 -- Lines of a tenant that are looked at.

local aside_left = ASIDE_MAX -- Lines and jobs that this claim may set aside.

-- Adds jobs to the classes of a tenant, those before them in the same class.
local function add(classes, number, scopes)
  local last = classes[#classes]
  local is_same = last and #last == #scopes + 1
  for at = 1, is_same and #scopes or 0 do is_same = is_same and last[at + 1] == scopes[at] end
  if is_same then
    last[1] = last[1] + number
  else
    classes[#classes + 1] = {number, unpack(scopes)}
  end
end

-- Adds the first jobs of a line, up to `most`, and sets aside those whose type has no room. Returns
-- how many there are.
local function look_at_jobs(line, most, classes)
  local number, from = 0, 0
  while number < most do
    if heads.aside > 0 then resume.for_line(line, most - number) end
    zflush(line.key)
    local seqs = call('ZRANGE', line.key, from, from + most - number - 1)
    if #seqs == 0 then break end
    from = from + #seqs
    for _, row in ipairs(rows.list(seqs)) do
      local type_scope = 'y\0\0' .. row.type
      local has_no_room = platform.room(type_scope) == 0 or aside.is_behind(row)
      if has_no_room and aside_left > 0 then
        aside_left, from = aside_left - 1, from - 1
        zdrop(line.key, row.seq)
        aside.set_job(row)
        lines.touch(row.tenant, row.queue)
      elseif not has_no_room then
        number = number + 1
        add(classes, 1, platform.limited(row))
      end
    end
    groups.refresh_all()
  end
  return number
end

-- Looks at a line whose queue has room for `most` as far as its tenant goes.
local function look_at_line(line, most, classes)
  local scope = 'q\0\0' .. line.queue
  if platform.room(scope) == 0 and aside_left > 0 then
    aside_left = aside_left - 1
    aside.set_line(line)
    turns.close(line)
    return 0
  end
  if platform.has_types() then return look_at_jobs(line, most, classes) end
  zflush(line.key)
  local number, scopes = math.min(most, call('ZCARD', line.key)), {}
  for _, one in ipairs({WHOLE_STORE, scope}) do
    if platform.running(one) then scopes[#scopes + 1] = one end
  end
  if number > 0 then add(classes, number, scopes) end
  return number
end

-- The classes of the jobs that a tenant could start, at most `most`, in the order of its lines; how
-- many jobs these are, and whether it has no more.
function forecast.tenant(tenant, queues, most)
  local room, number, classes = math.min(most, limits.tenant_room(tenant)), 0, {}
  local found = fairness.lines(tenant, queues, LINES_MAX)
  for _, queue in ipairs(found) do
    if number >= room then break end
    local its_room = math.min(room - number, limits.queue_room(tenant, queue))
    if its_room > 0 then
      number = number + look_at_line(lines.of(tenant, queue), its_room, classes)
    end
  end
  return classes, number, #found < LINES_MAX and number < room
end

-- Whether this claim may set nothing more aside: the next one goes on.
function forecast.exhausted() return aside_left == 0 end
