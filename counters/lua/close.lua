-- Closes a target that was deleted.
--
-- KEYS  1 likes hash of the target, 2 its warming lock
-- reply 1 the target was warm and is closed, 0 it was cold
--
-- The warming lock goes too: whoever is loading the target read MySQL before the deletion and must not finish.
redis.call('DEL', KEYS[2])
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'closed', 1)
return 1
