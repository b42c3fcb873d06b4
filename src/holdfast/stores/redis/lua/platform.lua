-- platform: what a store of several shards asks the home of the platform (lib_ledger), for which it
-- is called in shard 0. {reports, permits used, permits wanted, least, heals, names} -> {number of
-- scopes with settings, scopes, permits given, names that have no settings, the last epoch}.
--
-- A report is {shard, scope, running, epoch}, a used permit {shard, scope, epoch, jobs started}, a
-- wanted one {shard, scope, number}; it is given as {number, epoch}. The scopes of the answer are
-- those with room for fewer than `least` jobs: {scope, room, time in which room may come by itself or '',
-- what each shard told last, permits that are overdue}. Without `heals` nothing is written.

local reports, used, wanted, least, heals, names = unpack(ARGS, 1, 6)

local number = 0

local function scarce()
  local found = {}
  if least == 0 then return found end
  for _, scope in ipairs(call('HKEYS', key('running'))) do
    if heals then ledger.thaw(scope) end
    local has_rules = next(platform.of(scope)) ~= nil
    if has_rules or ledger.is_known(scope) then number = number + 1 end
    local room = has_rules and ledger.room(scope) or UNLIMITED
    if room < least then
      local at = room == 0 and ledger.room_at(scope)
      at = at and math.max(0, at - NOW)
      found[#found + 1] = {
        scope, room, at and whole(at) or '', ledger.told(scope), ledger.overdue(scope),
      }
    end
  end
  return found
end

-- The names that have no settings, and of which no put is under way.
local function gone()
  local found = {}
  for _, scope in ipairs(names) do
    ledger.thaw(scope)
    if not ledger.is_known(scope) then found[#found + 1] = scope end
  end
  return found
end

if heals then base.insist() end
for _, one in ipairs(reports) do ledger.report(unpack(one, 1, 4)) end
for _, one in ipairs(used) do ledger.settle(unpack(one, 1, 4)) end
local given = {}
for at, one in ipairs(wanted) do given[at] = {ledger.permit(one[1], one[2], one[3])} end
local found = scarce()
local answer = {number, found, given, gone(), heads.epoch or 0}
if heals then base.finish() end
return answer
