-- Makes the gate refuse likes of a user for a time.
--
-- KEYS  1 shard hash, 2 users whose likes are refused
-- ARGV  1 user id, 2 for how long, in ms
-- reply 1
local ends = milliseconds() + ARGV[2]
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', milliseconds())
call('ZADD', KEYS[2], 'GT', ends, ARGV[1])
local last = math.max(ends, tonumber(call('HGET', KEYS[1], 'refusing') or 0))
call('PEXPIREAT', KEYS[2], last)
call('HSET', KEYS[1], 'refusing', last)
return 1
