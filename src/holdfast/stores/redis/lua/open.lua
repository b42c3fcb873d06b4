-- open: the format and the number of shards that the store was made with, made now if it was not.
-- KEYS[1] is the key, KEYS[2] the tag of the shard, ARGV the format and the number of shards.

redis.call('HSETNX', KEYS[1], 'format', ARGV[1])
-- What an older format has is read as it is: only programs that know no packs must not come back.
local known = tonumber(redis.call('HGET', KEYS[1], 'format'))
if known and known < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'format', ARGV[1]) end
redis.call('HSETNX', KEYS[1], 'shards', ARGV[2])
return redis.call('HMGET', KEYS[1], 'format', 'shards')
