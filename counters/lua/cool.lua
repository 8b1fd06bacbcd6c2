-- Evicts an idle target whose changes are all in MySQL.
--
-- KEYS  1 likes hash of the target, 2 set of its users
-- ARGV  1 and 2 epoch and seq of the shard's watermark in MySQL, read before this call; 3 the time, in ms, after which
--       a target counts as used
-- reply 1 evicted, 0 in use or not yet written to MySQL
--
-- The watermark only moves forward, so an old watermark evicts less and is safe. A replay finds nothing to evict. The
-- script skips a hash that lacks a field, so that the janitor can continue with other targets.
local target = redis.call('HMGET', KEYS[1], 'last', 'at')
local epoch, seq = string.match(target[1] or '', '^(%d+)-(%d+)$')
local at = tonumber(target[2])
if not epoch or not at or at > tonumber(ARGV[3]) then return 0 end
epoch, seq = tonumber(epoch), tonumber(seq)
local applied_epoch, applied_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > applied_epoch or (epoch == applied_epoch and seq > applied_seq) then return 0 end
redis.call('UNLINK', KEYS[1], KEYS[2])
return 1
