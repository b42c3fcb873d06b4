-- Rules: a port of `refusal`, `settle`, `apply` and `why` of core/lifecycle.py. The state machine
-- of the behaviour suite compares both. The codes of states and reasons come from rows.py.

local REASONS = REASON_NAMES

function rules.token(row)
  return row.nonce ~= '' and row.nonce .. '.' .. whole(tonumber(row.seq))
end

-- Whether these are the parts of the token of the row's lease.
local function fits(row, seq, nonce)
  return row.nonce ~= '' and row.nonce == nonce and row.seq == seq
end

local function lapse_refusal(row, seq, nonce)
  if row.state == PROCESSING then
    local still = row.lease <= NOW
    return not (still and fits(row, seq, nonce)) and 'INVALID_LEASE_TOKEN' or nil
  end
  local still = row.expires > 0 and row.expires <= NOW
  return not (still and not nonce) and 'INVALID_LEASE_TOKEN' or nil
end

-- Why an act on a job is refused, in the order of P3; nil if it is allowed.
function rules.refusal(row, seq, nonce, lapsed)
  if not row then return 'JOB_NOT_FOUND' end
  if row.state == CANCELED then return 'JOB_CANCELED' end
  if row.state >= ENDED then return 'JOB_TERMINAL' end
  if lapsed then return lapse_refusal(row, seq, nonce) end
  if not fits(row, seq, nonce) then return 'INVALID_LEASE_TOKEN' end
  if row.state ~= PROCESSING or row.lease <= NOW then return 'LEASE_EXPIRED' end
end

local function kind_of(to, lapsed)
  if to == COMPLETED then return 'completed' end
  if to == FAILED then return 'failed' end
  if to == RETRYING then return 'retrying' end
  return lapsed and 'rescued' or 'released'
end

-- What the record becomes. The attempt budget is enforced here, whatever the caller decided. `come`:
-- what the change awaits has come already.
local function settle(row, change, come)
  local to, reason, run_at = change.to, change.reason, nil
  if to == RETRYING and row.attempt >= row.max_attempts then
    to = FAILED
    if reason == 0 then reason = REASON_MAX_ATTEMPTS end
  end
  if to == RETRYING or to == SCHEDULED or to == ENQUEUED then
    run_at = change.run_at or NOW + change.delay
    if come then run_at = math.min(run_at, NOW) end
    if to == SCHEDULED and run_at <= NOW then to = ENQUEUED end
  end
  return to, reason, run_at
end

-- Changes a row as `settle` decides. Returns the kind of the event and the instant at which the job
-- is ready. The caller removes the index entries before and adds them after.
function rules.apply(row, change, result, come)
  local to, reason, run_at = settle(row, change, come)
  if change.lapsed and row.state == PROCESSING then row.lapses = row.lapses + 1 end
  if change.miss then row.misses = math.min(row.misses + 1, 65535) end
  row.state, row.reason, row.updated = to, reason, NOW
  if change.give_back then row.attempt = row.attempt - 1 end
  if change.error and change.error ~= '' then values.keep(row, ERROR, change.error) end
  if run_at then row.run_at = run_at end
  if change.awaits then values.keep(row, AWAITS, to == SCHEDULED and change.awaits) end
  if not change.lapsed then row.nonce = '' end -- The late holder of an expired lease is told so.
  if to >= ENDED and (result or row.flags > 0) then values.keep(row, RESULT, result) end
  return kind_of(to, change.lapsed), run_at
end

-- The note of the event: the reason and the error of a failure.
function rules.why(row)
  if row.state == COMPLETED and row.reason == 0 then return nil end
  local text = row.reason == 0 and row.state ~= RETRYING and '' or values.kept(row, ERROR) or ''
  if row.reason == 0 then return row.state == RETRYING and text ~= '' and text or nil end
  local reason = REASONS[row.reason]
  return text ~= '' and reason .. ': ' .. text or reason
end
