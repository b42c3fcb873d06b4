-- Copies of tiers: over several shards each shard applies the tiers to its own tenants.
--
--   tiers     hash  what a shard applies (lib_tiers.lua); the version is the stamp of its state
--   closing   set   tiers that exist but get no new tenants, because they may be deleted
--   copying   set   home: tiers whose state not every shard is known to have, or that are closing
--
-- Home is the shard that stores the settings of tiers. It decides, and gives each state of a tier a
-- stamp. Stamps follow the server's time and grow, so a state that comes late replaces no newer one,
-- and a server that took over without the last states gives later stamps than the one before it.

local CLOSING, COPYING = key('closing'), key('copying')

function copies.is_closing(tier) return call('SISMEMBER', CLOSING, tier) == 1 end

-- Takes a state of a tier: what it sets, as JSON, nil if it is deleted.
local function take(tier, stamp, text, closing)
  tiers.configure(tier, text, stamp)
  call(closing and 'SADD' or 'SREM', CLOSING, tier)
end

-- -- home -----------------------------------------------------------------------------------------

-- Gives a tier a new state, of which all shards are to be told.
local function restamp(tier, text, closing, least)
  take(tier, math.max(SERVER_NOW, tiers.state(tier).version + 1, least or 0), text, closing)
  call('SADD', COPYING, tier)
end

-- Applies what a tier sets now, as JSON; nil if it is deleted.
function copies.set(tier, text) restamp(tier, text, false) end

-- Closes a tier, unless somebody does so already.
function copies.close(tier)
  if not copies.is_closing(tier) then restamp(tier, tiers.state(tier).json, true) end
end

-- Whether a tier is closing in the state with this stamp.
function copies.is_closed_by(tier, stamp)
  return copies.is_closing(tier) and tiers.state(tier).version == stamp
end

-- Opens a closing tier again. Returns whether it was closing.
function copies.reopen(tier)
  if not copies.is_closing(tier) then return false end
  base.insist()
  restamp(tier, tiers.state(tier).json, false)
  return true
end

-- Has all shards told of a tier once more: one of them has it with this stamp. If home has an older
-- one, a server was lost that had given it. What home has replaces it.
function copies.tell_again(tier, stamp)
  local state = tiers.state(tier)
  if stamp > state.version then
    restamp(tier, state.json or nil, copies.is_closing(tier), stamp + 1)
  end
  call('SADD', COPYING, tier)
end

-- All shards have the state with this stamp. A closing tier stays listed until it is open or deleted:
-- who closed it may die.
function copies.done(tier, stamp)
  if tiers.state(tier).version == stamp and not copies.is_closing(tier) then
    call('SREM', COPYING, tier)
  end
end

function copies.pending() return call('SMEMBERS', COPYING) end

-- Whether shards may lack what home has of a tier that somebody asked for.
function copies.is_worth_telling(tier)
  return tiers.exists(tier) or call('SISMEMBER', COPYING, tier) == 1
end

-- A tier as shards are told of it: {tier, stamp, JSON or '', 1 if it is closing, its users here}.
function copies.answer(tier)
  local state = tiers.state(tier)
  return {tier, whole(state.version), state.json or '', copies.is_closing(tier) and 1 or 0,
    tiers.users(tier)}
end

-- -- every shard ----------------------------------------------------------------------------------

-- Takes what home has of a tier, unless this shard has a newer state. Returns its users here.
function copies.accept(tier, stamp, text, closing)
  if stamp > tiers.state(tier).version then take(tier, stamp, text, closing) end
  return tiers.users(tier)
end
