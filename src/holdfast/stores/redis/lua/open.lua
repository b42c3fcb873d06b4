-- open: the format and the number of shards that the store was made with, made now if it was not.
-- KEYS[1] is the key, KEYS[2] the tag of the shard, ARGV the format and the number of shards.

redis.call('HSETNX', KEYS[1], 'format', ARGV[1])
redis.call('HSETNX', KEYS[1], 'shards', ARGV[2])
return redis.call('HMGET', KEYS[1], 'format', 'shards')
