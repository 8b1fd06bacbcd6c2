-- Writes a set of a load.
--
-- KEYS  1 warming lock, 2 the set
-- ARGV  1 the lock's token, 2 the set in the form of DUMP
-- reply 1 done, 0 the lock is lost
--
-- The lock is released by the script that makes the target warm. So a copy of this call that the network delivers late,
-- or a second time, does not change the set of a warm target.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('RESTORE', KEYS[2], 0, ARGV[2], 'REPLACE')
return 1
