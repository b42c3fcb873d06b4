-- again: {a claim, nonces} -> rows as told: what a claim over several shards has leased in this one
-- under these nonces, as far as it still holds.

local claim = take.claim_of(ARGS[1])
for _, nonce in ipairs(ARGS[2]) do
  claim.nonce = nonce
  take.again(claim)
end
return take.answer(claim, true)
