-- Warms a target that was just created and so has no likes yet.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 set of its users
-- ARGV  1 when the target was created, in s; 2 now in ms
-- reply 1 warm, 0 left cold: it warms on its first like
--
-- A call that comes late (a paused process, a repeated call) must not reset a target that was liked, written to MySQL and
-- forgotten in between. So it counts for ten seconds only, in which the janitor cools nothing; and not for a target that
-- may be older than the shard's opening, which forgets targets too: by ten seconds, for clocks that differ.
local opened = redis.call('HMGET', KEYS[1], 'epoch', 'opened')
if not opened[1] then return 0 end
if redis.call('EXISTS', KEYS[2], KEYS[3]) > 0 then return 1 end
local created = tonumber(ARGV[1])
if tonumber(redis.call('TIME')[1]) - created > 10 then return 0 end
if created - tonumber(opened[2] or 0) < 10 then return 0 end
redis.call('HSET', KEYS[2], 'count', 0, 'last', '0-0', 'at', ARGV[2])
return 1
