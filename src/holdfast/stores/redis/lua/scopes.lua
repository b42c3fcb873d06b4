-- scopes: {scope, epoch, ..., scope, epoch, ...} -> what this shard tells of the scopes in the first
-- list (lib_permits), and the names of all its scopes. Those in the first list are counted from now
-- on, and permits up to their epochs start nothing any more; those in the second have no settings
-- and are forgotten.

local fences, drops = ARGS[1], ARGS[2]

base.insist()
for at = 1, #fences, 2 do permits.fence(fences[at], fences[at + 1]) end
for at = 1, #drops, 2 do permits.drop(drops[at], drops[at + 1]) end
base.finish()
return {permits.report(), call('HKEYS', key('running'))}
