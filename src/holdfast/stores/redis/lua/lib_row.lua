-- A row's format and flags, which all parts may know.
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
