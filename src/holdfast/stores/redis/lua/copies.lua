-- copies: {act, list, all or nil} -> what it gives. The ways of settings that all shards copy
-- (settings_copies.py); lib_copies.lua says what a copy is.
--
-- Of home:
--   pending  {name, opens} -> up to COPIES_MAX of {name, stamp, copy, users}: these, then others
--            that not every shard is known to have. What is closing is opened again if `opens` or
--            `all` says so; of the others it is left out if not
--   done     {name, stamp} -> nothing: all shards have these
--   again    {name, stamp, kind, part} -> nothing: some shard has a copy with another stamp
-- Of every shard:
--   accept   {name, copy} -> for each the number of its users in this shard
--   list     -> {name, stamp, kind, part, ...} of all its copies. Reads only

local act, list, all = ARGS[1], ARGS[2], ARGS[3]
local acts = {}

function acts.pending()
  local found, seen = {}, {}
  for _, one in ipairs(list) do
    local name, opens = one[1], one[2]
    if #found == COPIES_MAX then break end
    seen[name] = true
    if opens then copies.reopen(name) end
    if copies.is_worth_telling(name) then found[#found + 1] = copies.answer(name) end
  end
  for _, name in ipairs(copies.pending()) do
    if #found == COPIES_MAX then break end
    if all then copies.reopen(name) end
    if not seen[name] and not copies.is_closing(name) then
      found[#found + 1] = copies.answer(name)
    end
  end
  if copies.has_opened() then base.finish() end
  return found
end

function acts.done()
  base.insist()
  for _, one in ipairs(list) do copies.done(one[1], one[2]) end
  base.finish()
end

function acts.again()
  base.insist()
  for _, one in ipairs(list) do copies.repeat_from(one[1], one[2], one[3], one[4]) end
  base.finish()
end

function acts.accept()
  base.insist()
  local users = {}
  for at, one in ipairs(list) do users[at] = copies.accept(one[1], one[2]) end
  base.finish()
  return users
end

function acts.list() return copies.list() end

return acts[act]()
