-- ack: transitions -> for each the code of the new state, or the code of the refusal, or the size
-- that its journal would have had (lib_journal). Over several
-- shards, if a scope of the platform was concerned, a report of it comes last (lib_permits).
--
-- Transitions are one flat list, ITEM values each: tenant, id, sequence or false, nonce or false,
-- result or false, change. Sequence and nonce are the parts of the token. The change is false for a
-- completion (most are), else {to, delay, run_at or nil, give_back, miss, lapsed, reason or 0,
-- error or nil, awaits or nil, entries or nil (lib_journal)}.

local ITEM = 6
local COMPLETION = {to = COMPLETED, reason = 0}

base.insist()

-- The row of a job: that of the sequence, if it is the right one.
local function find(tenant, id, seq)
  local row = seq and rows.get(seq)
  if row and row.tenant == tenant and row.id == id then return row end
  return rows.named(rows.name(tenant, id))
end

local function ack(tenant, id, seq, nonce, result, change)
  local row = find(tenant, id, seq)
  local refusal = rules.refusal(row, seq, nonce, change.lapsed)
  if refusal then return refusal end
  local too_much = change.entries and journal.write(row, change.entries)
  if too_much then return too_much end
  local come = change.awaits and journal.has(row, change.awaits)
  index.remove(row)
  local kind, run_at = rules.apply(row, change, result, come)
  local why = change.awaits or rules.why(row)
  if row.state >= ENDED then index.finish(row) else index.add(row) end
  events.note(kind, row, run_at and run_at > NOW and run_at or nil, why, true)
  return row.state
end

local function change_of(list)
  if not list then return COMPLETION end
  return {to = list[1], delay = list[2], run_at = list[3], give_back = list[4], miss = list[5],
    lapsed = list[6], reason = list[7], error = list[8], awaits = list[9], entries = list[10]}
end

local seqs, answers = {}, {}
for at = 1, #ARGS, ITEM do
  if ARGS[at + 2] then seqs[#seqs + 1] = ARGS[at + 2] end
end
rows.load(seqs)
for at = 1, #ARGS, ITEM do
  answers[#answers + 1] = ack(ARGS[at], ARGS[at + 1], ARGS[at + 2], ARGS[at + 3], ARGS[at + 4],
    change_of(ARGS[at + 5]))
end
base.finish()
if SHARDS > 1 and rawget(library, 'platform') then answers[#answers + 1] = permits.report() end
return answers
