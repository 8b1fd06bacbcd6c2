-- Keeps the lock of a load, and notes the sets that it writes as garbage, until the target uses them.
--
-- KEYS  1 warming lock, 2 garbage of the shard, 3 likes hash of the target
-- ARGV  1 the lock's token, which is also the name of the load; 2 how long to hold the lock, in ms; 3 sets, or 0 for none
-- reply 1 the lock is held, 0 it is lost
--
-- Garbage is a sorted set of "LIKES:LOAD SETS" with the time in ms after which it may be swept.
-- Without the lock nothing is noted: the target may be warm, and use the sets.
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] ~= '0' then
  call('ZADD', KEYS[2], milliseconds() + 60000, KEYS[3] .. ':' .. ARGV[1] .. ' ' .. ARGV[3])
end
call('PEXPIRE', KEYS[1], ARGV[2])
return 1
