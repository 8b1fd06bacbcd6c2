-- Forgets a target that is idle and clean: MySQL has everything.
--
-- KEYS  1 likes hash of the target, 2 set of its users
-- ARGV  1 and 2 epoch and seq of the shard's watermark in MySQL, read before this call; 3 idle since, in ms
-- reply 1 cooled, 0 still in use or not yet written to MySQL
--
-- The watermark only moves forward, so an old one is merely cautious. A replay finds nothing.
-- A hash that lost a field is left alone: it must not keep the janitor from the others.
local target = redis.call('HMGET', KEYS[1], 'last', 'at')
local epoch, seq = string.match(target[1] or '', '^(%d+)-(%d+)$')
local at = tonumber(target[2])
if not epoch or not at or at > tonumber(ARGV[3]) then return 0 end
epoch, seq = tonumber(epoch), tonumber(seq)
local applied_epoch, applied_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > applied_epoch or (epoch == applied_epoch and seq > applied_seq) then return 0 end
redis.call('UNLINK', KEYS[1], KEYS[2])
return 1
