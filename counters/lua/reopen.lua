-- Opens a closed target whose deletion was undone.
--
-- KEYS  1 likes hash of the target
-- ARGV  1 the mark of the undone deletion, which the caller read before it asked MySQL
-- reply 1 open, 0 the target is cold, or was closed by a later deletion
--
-- The target need not be loaded again: its set has every acknowledged like, and pending events reach MySQL as usual. A
-- replay after a later deletion finds another mark.
if redis.call('HGET', KEYS[1], 'closed') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'closed')
return 1
