-- ack: {completions, changes, runs} -> for each, in this order, the state's number, or the code of the
-- refusal. No job is named twice among the completions and runs.
-- Completions, nearly all there are, are one flat list of tenant, id, seq, nonce, result or false.
-- A change is {tenant, id, seq or nil, nonce or nil, result or nil, to, delay, run_at or nil,
-- give_back, miss, lapsed, reason or 0, error or nil}. Sequence and nonce are those of the token.
-- A run is {tenant, nonce, first sequence, number, ids in one text, results}: completions of jobs
-- that were leased together out of a pack and follow each other. Its answer is one for all, or a list.

core.insist()

local SIZE = 5 -- Values of a completion.
local completions, changes, answers = ARGS[1], ARGS[2], {}
local number = #completions / SIZE

-- The row of this name: the one of the sequence, if that is right.
local function look(tenant, id, seq)
  local row = seq and rows.get(seq)
  if row and row.tenant == tenant and row.id == id then return row end
  return rows.named(rows.name(tenant, id))
end

local function ack(tenant, id, seq, nonce, change)
  local row, lapsed = look(tenant, id, seq), change.lapsed
  local refusal = rules.refusal(row, seq, nonce, lapsed)
  if refusal then return refusal end
  jobs.leave(row)
  local kind, run_at = rules.apply(row, change)
  local why = rules.why(row)
  if row.state >= ENDED then jobs.finish(row) else jobs.enter(row) end
  log.note(kind, row, run_at and run_at > NOW and run_at or nil, why, true)
  return row.state
end

-- What pieces could not do of a run, one by one.
local function ack_rest(rest, tenant, nonce, first, number, ids, results)
  if #rest == 0 then return COMPLETED end
  local found, width = {}, #ids / number
  for index = 1, number do found[index] = COMPLETED end
  for _, at in ipairs(rest) do
    found[at + 1] = ack(tenant, string.sub(ids, at * width + 1, (at + 1) * width),
      wide(first + at * SHARDS), nonce,
      {to = COMPLETED, reason = 0, result = results[at + 1] or nil})
  end
  return found
end

local rests = {}
for index, run in ipairs(ARGS[3]) do rests[index] = pieces.complete(unpack(run)) end

local seqs, left = {}, {}
for index = 1, number do seqs[index] = completions[SIZE * index - 2] end
local texts = core.values(ROWS, seqs)
for index = 1, number do
  local at, text = SIZE * index, texts[index]
  if text and plain.complete(seqs[index], text, completions[at - 4], completions[at - 3],
    completions[at - 1], completions[at])
  then
    answers[index] = COMPLETED
  else
    left[#left + 1] = index
  end
end

if #left > 0 or #changes > 0 then plain.settle() end
for _, index in ipairs(left) do
  local at = SIZE * index
  answers[index] = ack(completions[at - 4], completions[at - 3], seqs[index], completions[at - 1],
    {to = COMPLETED, reason = 0, result = completions[at] or nil})
end
local ahead = {}
for _, item in ipairs(changes) do ahead[#ahead + 1] = item[3] end
rows.load(ahead)
for index, item in ipairs(changes) do
  answers[number + index] = ack(item[1], item[2], item[3], item[4], {
    to = item[6], delay = item[7], run_at = item[8], give_back = item[9], miss = item[10],
    lapsed = item[11], reason = item[12], error = item[13], result = item[5],
  })
end
for index, run in ipairs(ARGS[3]) do
  answers[#answers + 1] = ack_rest(rests[index], unpack(run))
end
core.finish()
return answers
