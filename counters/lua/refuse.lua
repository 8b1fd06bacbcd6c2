-- Makes the gate refuse likes of a user for a time.
--
-- KEYS  1 shard hash, 2 users whose likes are refused
-- ARGV  1 user id, 2 for how long, in ms: at most a minute
-- reply 1
--
-- A refusal that has more than a minute left is from before the clock was set back, and is over.
local now = milliseconds()
local ends, last = now + math.min(60000, ARGV[2]), tonumber(call('HGET', KEYS[1], 'refusing') or 0)
if last > now + 60000 then last = 0 end
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
call('ZREMRANGEBYSCORE', KEYS[2], '(' .. now + 60000, '+inf')
call('ZADD', KEYS[2], 'GT', ends, ARGV[1])
last = math.max(ends, last)
call('PEXPIREAT', KEYS[2], last)
call('HSET', KEYS[1], 'refusing', last)
return 1
