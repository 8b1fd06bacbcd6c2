-- Warms a target that was just created, and so has no likes yet.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 set of its users
-- ARGV  1 when the target was created, in s; 2 now in ms
-- reply 1 warm, 0 cold: the target warms on its first like
--
-- A late call, of a paused process or a repeated one, must not reset a target that was liked and evicted in between. So
-- the script refuses targets that are older than ten seconds, which is less than the janitor's shortest idle time. The
-- opening of a shard evicts targets, too. So the script also refuses targets that were created before the opening, or
-- within ten seconds after it, because clocks may differ.
local opened = redis.call('HMGET', KEYS[1], 'epoch', 'opened')
if not opened[1] then return 0 end
if redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then return 1 end
local created = tonumber(ARGV[1])
if tonumber(redis.call('TIME')[1]) - created > 10 then return 0 end
if created - tonumber(opened[2] or 0) < 10 then return 0 end
redis.call('HSET', KEYS[2], 'count', 0, 'last', '0-0', 'at', ARGV[2])
return 1
