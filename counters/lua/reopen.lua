-- Takes likes again of a target whose deletion was taken back.
--
-- KEYS  1 likes hash of the target
-- ARGV  1 the mark of the deletion that MySQL was asked about after the mark was read
-- reply 1 open, 0 the target is cold, or closed by a later deletion
--
-- Nothing is read from MySQL again: the set is all that was acknowledged, and what of it is still on its way gets there
-- as ever. A replay that comes after another deletion finds another mark.
if redis.call('HGET', KEYS[1], 'closed') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'closed')
return 1
