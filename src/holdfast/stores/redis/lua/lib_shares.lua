-- Shares: what each tenant may take of the room of the platform's scopes in one round of a claim,
-- by weight. A turn is {weight, full (it met a scope without room), taken, shares}: the last two
-- are by scope, how many jobs the tenant took and how many it may take.

local aside_left = ASIDE_MAX -- Lines and jobs that this claim may set aside.
local number, total, times = 0, 0, {}

-- Begins a round of so many tenants, with their weights in all.
function shares.begin(tenants, weights) number, total, times = tenants, weights, {} end

function shares.turn(weight) return {weight = weight, full = false, taken = {}, shares = {}} end

-- The turn of a tenant for which a claim over several shards meant so many jobs of each scope, from
-- these queues.
function shares.meant(weight, scopes, queues)
  local turn = shares.turn(weight)
  for at = 1, #scopes, 2 do turn.shares[scopes[at]] = scopes[at + 1] end
  turn.queues = queues
  return turn
end

-- What a tenant may still take of a scope.
local function share(turn, scope)
  local room = platform.room(scope)
  if room >= UNLIMITED then return room end
  if room == 0 then
    turn.full = true
    return 0
  end
  local most = turn.shares[scope]
  if not most and turn.queues then return 0 end
  if not most then
    times[scope] = times[scope] or fairness.rounds(room, number, total)
    most = turn.weight * times[scope]
    turn.shares[scope] = most
  end
  return math.max(0, math.min(room, most - (turn.taken[scope] or 0)))
end

-- How many jobs of a line may start as far as its queue goes, and whether the line was set aside.
function shares.line_room(turn, line)
  local scope = 'q\0\0' .. line.queue
  local room = share(turn, scope)
  if room > 0 or platform.room(scope) > 0 or aside_left == 0 then return room, false end
  aside_left = aside_left - 1
  aside.set_line(line)
  return 0, true
end

-- What keeps a job from starting as far as its type goes: 'waits' if it was set aside, 'stop' if
-- its line goes on with it in the next round or claim; nil if nothing does.
function shares.stop(turn, row)
  local scope, is_behind = 'y\0\0' .. row.type, aside.is_behind(row)
  if not is_behind and share(turn, scope) > 0 then return nil end
  -- Over several shards there are permits only for what was meant: the type may have room.
  local may_fit = platform.room(scope) > 0 or (turn.queues and not turn.shares[scope])
  if aside_left == 0 or (not is_behind and may_fit) then return 'stop' end
  aside_left = aside_left - 1
  aside.set_job(row)
  return 'waits'
end

-- Counts a job that starts, of its queue and its type.
function shares.start(turn, row)
  for _, scope in ipairs(platform.limited(row)) do
    if scope ~= WHOLE_STORE then
      turn.taken[scope] = (turn.taken[scope] or 0) + 1
      platform.take_tokens(scope, 1)
    end
  end
end

-- Whether a queue or a type that the tenant met has no room left.
function shares.stopped(turn)
  for scope in pairs(turn.shares) do
    if platform.room(scope) == 0 then return true end
  end
  return turn.full
end

-- Whether the tenant took all of a share: there may be more for it in the next round.
function shares.has_more(turn)
  for scope, most in pairs(turn.shares) do
    if (turn.taken[scope] or 0) >= most then return true end
  end
  return false
end

-- Whether this claim may set nothing more aside: the next one goes on.
function shares.exhausted() return aside_left == 0 end
