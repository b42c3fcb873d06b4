-- copies: {act, list, all or nil} -> what it gives. How the shards of a store come to have the same
-- tiers (settings_copies.py, lib_copies.lua).
--
-- Of home:
--   pending  {tier, opens} -> up to COPIES_MAX of {tier, stamp, text, closing, users}: these, then
--            others that not every shard is known to have. What is closing is opened again if
--            `opens` or `all` says so; of the others it is left out if not
--   done     {tier, stamp} -> nothing: all shards have these
--   again    {tier, stamp} -> nothing: some shard has these with other stamps
-- Of every shard:
--   accept   {tier, stamp, text or nil, closing} -> for each the number of its users in this shard
--   list     -> {tier, stamp, ...} of all tiers. Reads only

local act, list, all = ARGS[1], ARGS[2], ARGS[3]
local acts = {}

function acts.pending()
  local found, seen, opened = {}, {}, false
  for _, one in ipairs(list) do
    local tier, opens = one[1], one[2]
    if #found == COPIES_MAX then break end
    seen[tier] = true
    if opens then opened = copies.reopen(tier) or opened end
    if copies.is_worth_telling(tier) then found[#found + 1] = copies.answer(tier) end
  end
  for _, tier in ipairs(copies.pending()) do
    if #found == COPIES_MAX then break end
    if all then opened = copies.reopen(tier) or opened end
    if not seen[tier] and not copies.is_closing(tier) then
      found[#found + 1] = copies.answer(tier)
    end
  end
  if opened then base.finish() end
  return found
end

function acts.done()
  base.insist()
  for _, one in ipairs(list) do copies.done(one[1], one[2]) end
end

function acts.again()
  base.insist()
  for _, one in ipairs(list) do copies.tell_again(one[1], one[2]) end
  base.finish()
end

function acts.accept()
  base.insist()
  local users = {}
  for at, one in ipairs(list) do users[at] = copies.accept(one[1], one[2], one[3], one[4]) end
  base.finish()
  return users
end

function acts.list() return tiers.versions() end

return acts[act]()
