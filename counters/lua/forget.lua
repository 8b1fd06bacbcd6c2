-- Evicts keys of targets while a shard is being opened.
--
-- KEYS  1 shard hash, 2 relay lock, then the keys to evict
-- ARGV  1 the lock's token, 2 the epoch of the opening
-- reply 1 evicted, 0 the lock has another owner or this opening is over
--
-- If the opening is over, the shard may be open, and warm targets of an open shard must not be evicted. A replay finds
-- nothing to evict.
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('HGET', KEYS[1], 'opening') ~= ARGV[2] then return 0 end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
