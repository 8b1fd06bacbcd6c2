-- Looks whether a target is cold, and no load that has begun can make it warm.
--
-- KEYS  1 likes hash of the target, 2 warming lock
-- ARGV  1 1 to take the lock of a load away, 0 to leave it
-- reply 0 the target is cold; 1 it is warm or, if the lock is left, being loaded
if ARGV[1] == '1' then call('DEL', KEYS[2]) end
return math.min(1, call('EXISTS', KEYS[1], KEYS[2]))
