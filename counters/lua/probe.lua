-- Adds an event without an effect to the outbox of an open shard.
--
-- KEYS  1 shard hash, 2 outbox
-- ARGV  1 the event shard.probed as JSON
-- reply 1 done, 0 the shard is closed
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return 0 end
redis.call('XADD', KEYS[2], epoch .. '-*', 'e', ARGV[1])
return 1
