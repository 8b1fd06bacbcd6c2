-- Adds claims to the hash of a load.
--
-- KEYS  1 warming lock, 2 the hash
-- ARGV  1 the lock's token, then users and the ids of their claims in turn
-- reply 1 done, 0 the lock is lost
--
-- The lock is released by the script that makes the drop warm. So a copy of this call that the network delivers late, or
-- a second time, does not change the hash of a warm drop.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 1000 do redis.call('HSET', KEYS[2], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
return 1
