-- Ends the opening of a shard. From then on the shard accepts likes.
--
-- KEYS  1 shard hash, 2 relay lock
-- ARGV  1 the lock's token, 2 the epoch
-- reply 1 open, 0 the lock has another owner, or Redis was restarted since the opening began
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'opening') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'opened', redis.call('TIME')[1])
redis.call('HDEL', KEYS[1], 'opening', 'restored')
return 1
