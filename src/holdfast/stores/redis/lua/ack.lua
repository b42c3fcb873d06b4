-- ack: {transitions} -> for each the state's number, or the code of the refusal.
-- A transition is {tenant, id, seq or nil, token or nil, to, delay, run_at or nil, give_back, miss,
-- lapsed, reason or 0, error or nil, result or nil}. The sequence is the caller's guess, from the
-- token.

core.insist()

local guesses, texts = {}, {}
for _, item in ipairs(ARGS) do
  if item[3] then guesses[#guesses + 1] = item[3] end
end
for index, text in ipairs(core.values(ROWS, guesses)) do texts[guesses[index]] = text end

-- The row of this name: the guess, if it is right.
local function look(tenant, id, guess)
  local row = guess and texts[guess] and rows.adopt(guess, texts[guess])
  if row and row.tenant == tenant and row.id == id then return row end
  return rows.named(rows.name(tenant, id))
end

-- Nearly every ack: a completion and nothing else. A later one of the same job must look anew.
local function is_completed(item)
  local seq = item[3]
  local text = seq and texts[seq]
  if not text or rows.known(seq) or item[5] ~= COMPLETED or item[8] or item[9] or item[10]
    or item[11] ~= 0 or item[12] or not plain.complete(seq, text, item)
  then
    return false
  end
  texts[seq] = nil
  return true
end

local function ack(item)
  if is_completed(item) then return COMPLETED end
  local row, lapsed = look(item[1], item[2], item[3]), item[10]
  local refusal = rules.refusal(row, item[4], lapsed)
  if refusal then return refusal end
  jobs.leave(row)
  local kind, run_at = rules.apply(row, {
    to = item[5], delay = item[6], run_at = item[7], give_back = item[8], miss = item[9],
    lapsed = lapsed, reason = item[11], error = item[12], result = item[13],
  })
  local why = rules.why(row)
  if row.state >= ENDED then jobs.finish(row) else jobs.enter(row) end
  log.note(kind, row, run_at and run_at > NOW and run_at or nil, why, true)
  return row.state
end

local answers = {}
for index, item in ipairs(ARGS) do answers[index] = ack(item) end
core.finish()
return answers
