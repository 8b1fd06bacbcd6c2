-- Keeps a cold target cold: a load that has begun cannot finish.
--
-- KEYS  1 likes hash of the target, 2 warming lock
-- reply 1 the target is warm, 0 it is cold
call('DEL', KEYS[2])
return call('EXISTS', KEYS[1])
