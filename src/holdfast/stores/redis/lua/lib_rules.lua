-- Rules: `lifecycle.refusal`, `settle`, `apply` and `why`, word for word. The state machine of the
-- behaviour suite holds these to those.

local REASONS = {'MAX_ATTEMPTS', 'LEASE_EXPIRED', 'PERMANENT', 'TIMEOUT', 'DECODE', 'UNKNOWN_TYPE',
  'EXPIRED', 'PARENT_FAILED'}
local MAX_ATTEMPTS = 1

function rules.token(row)
  return row.nonce ~= '' and row.nonce .. '.' .. whole(tonumber(row.seq))
end

-- Whether a token, of which these are the parts, is that of the row's lease.
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

-- Why an act on a job is refused, in the order of P3; nil when it may go on.
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

-- What the record becomes. The attempt budget is enforced here, whatever the caller decided.
local function settle(row, change)
  local to, reason, run_at = change.to, change.reason, nil
  if to == RETRYING and row.attempt >= row.max_attempts then
    to = FAILED
    if reason == 0 then reason = MAX_ATTEMPTS end
  end
  if to == RETRYING or to == SCHEDULED or to == ENQUEUED then
    run_at = change.run_at or NOW + change.delay
    if to == SCHEDULED and run_at <= NOW then to = ENQUEUED end
  end
  return to, reason, run_at
end

-- Moves the job as `settle` says; returns the event's kind and the instant it is ready.
-- The caller took it out of its place before, and puts it into the new one after.
function rules.apply(row, change)
  local to, reason, run_at = settle(row, change)
  if change.lapsed and row.state == PROCESSING then row.lapses = row.lapses + 1 end
  if change.miss then row.misses = row.misses + 1 end
  row.state, row.reason, row.updated = to, reason, NOW
  if change.give_back then row.attempt = row.attempt - 1 end
  if change.error and change.error ~= '' then rows.keep(row, ERROR, change.error) end
  if run_at then row.run_at = run_at end
  if not change.lapsed then row.nonce = '' end -- A lapsed one stays: its late holder shall hear.
  if to >= ENDED then rows.keep(row, RESULT, change.result) end
  return kind_of(to, change.lapsed), run_at
end

-- The note of the event: the reason and error of a failure.
function rules.why(row)
  if row.state == COMPLETED and row.reason == 0 then return nil end
  local text = row.reason == 0 and row.state ~= RETRYING and '' or rows.kept(row, ERROR) or ''
  if row.reason == 0 then return row.state == RETRYING and text ~= '' and text or nil end
  local reason = REASONS[row.reason]
  return text ~= '' and reason .. ': ' .. text or reason
end
