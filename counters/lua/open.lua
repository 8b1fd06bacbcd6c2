-- Warms a target that was just created and so has no likes yet.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 set of its users
-- ARGV  1 when the target was created, in s; 2 now in ms
-- reply 1 warm, 0 left cold: it warms on its first like
--
-- A call that comes late (a paused process) must not reset a target that was liked, written to MySQL and cooled in
-- between: ten seconds after its creation a target is warmed from MySQL only. The janitor cools nothing that young.
if redis.call('HEXISTS', KEYS[1], 'epoch') == 0 then return 0 end
if redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then return 1 end
if tonumber(redis.call('TIME')[1]) - tonumber(ARGV[1]) > 10 then return 0 end
redis.call('HSET', KEYS[2], 'count', 0, 'last', '0-0', 'at', ARGV[2])
return 1
