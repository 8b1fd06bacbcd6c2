-- Removes events from the outbox that Kafka has acknowledged.
--
-- KEYS  1 relay lock of the shard, 2 outbox
-- ARGV  1 the lock's token, 2 the first id to keep
-- reply the number of entries removed; -1 the lock has another owner
--
-- A replay removes nothing more.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
return redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2])
