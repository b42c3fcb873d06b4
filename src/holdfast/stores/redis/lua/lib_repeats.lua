-- Repeats: a claim that gave leases is stored under its nonce for a while: until when, and the
-- sequences of its jobs. Repeated, it gives those of its leases that are still valid, and no others.

local SEQ_SIZE = 16

function repeats.remember(claim, leased)
  if #leased == 0 then return end
  local seqs = {wide(NOW + CLAIM_REPEAT_US)}
  for at, row in ipairs(leased) do seqs[at + 1] = row.seq end
  local text = table.concat(seqs)
  call('SET', key('claim:' .. claim.nonce), text, 'PX', whole(CLAIM_REPEAT_US / 1000))
end

-- Whether a claim asks for jobs like this: a caller with the nonce of another gets none of its
-- leases.
local function asks_for(claim, row)
  if not claim.of_tenants then
    claim.of_tenants, claim.of_queues = set_of(claim.tenants) or {}, set_of(claim.queues) or {}
  end
  return (not claim.tenants or claim.of_tenants[row.tenant])
    and (not claim.queues or claim.of_queues[row.queue])
end

-- Whether this claim was made before. If so, its valid leases are added to `leased`.
function repeats.find(claim, leased)
  local known = false
  for _, nonce in ipairs(claim.nonces) do
    local text = call('GET', key('claim:' .. nonce))
    if text and tonumber(string.sub(text, 1, SEQ_SIZE)) > NOW then
      known = true
      local seqs = {}
      for at = SEQ_SIZE + 1, #text, SEQ_SIZE do
        seqs[#seqs + 1] = string.sub(text, at, at + SEQ_SIZE - 1)
      end
      for _, row in ipairs(rows.list(seqs)) do
        local holds = row.state == PROCESSING and row.lease > NOW and row.nonce == nonce
        if holds and asks_for(claim, row) then leased[#leased + 1] = row end
      end
    end
  end
  return known
end
