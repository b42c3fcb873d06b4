-- A row's format and flags and that of counts, which all parts may know.
--
--   state flags reason | attempt fence lapses misses | priority created updated run_at expires
--   lease last | nonce worker | max_attempts | keep keep_failed key_us size | tenant id queue type
--   group key | {tags, origin}
--
-- `layout.py` draws it; `rows.py` reads it.

local FIXED = 'I4ddddHc0Hc0Hc0Hc0Hc0Hc0'
local HEAD = '>BBBI4I4I4I4ddddddd'
local HEAD_SIZE = struct.size(HEAD)
local FORMAT = HEAD .. 'Hc0Hc0' .. FIXED
local TALLY = '>ddddddddd' -- Of a scope's counts: the states, and bytes.

-- Flags: where an enqueued job stands, and which of the hashes of seldom things know it.
local GATED, GRANTED, LATE, AGED = 1, 2, 4, 8
local ERROR, RESULT, PROGRESS, REPLAYED = 16, 32, 64, 128

local function has(row, flag) return row.flags % (2 * flag) >= flag end
local function mark(row, flag)
  if not has(row, flag) then row.flags = row.flags + flag end
end
local function unmark(row, flag)
  if has(row, flag) then row.flags = row.flags - flag end
end

-- The values of a row; nothing when it is damaged, so that nobody can read it.
local function sound(fine, state, ...)
  if fine and state >= WAITING and state <= CANCELED then return state, ... end
end
local function unpacked(text) return sound(pcall(struct.unpack, FORMAT, text)) end

-- A row with a new head and holder; what never changes is copied as it is.
local function with_head(text, nonce, worker, head, holder)
  return head .. holder .. string.sub(text, HEAD_SIZE + #nonce + #worker + 5)
end

-- The row of a ready job as a claim leases it, and whether it has attempts left; nil when it is not
-- plain (lib_plain).
local function leased(text, claim)
  local _, flags, reason, attempt, fence, lapses, misses, priority, created, _, run_at, expires, _,
    last, nonce, worker, max_attempts, _, _, _, _, tenant, id, queue, type, group, _, from =
    unpacked(text)
  if flags ~= 0 or expires > 0 or group ~= '' or from <= #text then return nil end
  attempt, fence = attempt + 1, fence + 1
  local till = NOW + claim.lease_us
  if not claim.holder then
    claim.till = whole(till)
    claim.holder = struct.pack('>Hc0Hc0', #claim.nonce, claim.nonce, #claim.worker, claim.worker)
  end
  last = log.fact('leased', tenant, id, queue, type, attempt, fence, till, claim.worker, last)
  local head = struct.pack(HEAD, PROCESSING, 0, reason, attempt, fence, lapses, misses, priority,
    created, NOW, run_at, 0, till, last)
  return with_head(text, nonce, worker, head, claim.holder), attempt < max_attempts, tenant, queue
end
