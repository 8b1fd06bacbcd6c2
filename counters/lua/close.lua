-- Closes a deleted target.
--
-- KEYS  1 likes hash of the target, 2 its warming lock
-- reply 1 the target was warm and is closed, 0 it was cold
--
-- The script deletes the warming lock, too: a process that is loading the target may have read MySQL before the
-- deletion, and must not finish. The value of closed is the current time in microseconds, so that reopen.lua removes
-- the mark of this deletion only, and not that of a later one.
redis.call('DEL', KEYS[2])
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'closed', string.format('%d%06d', time[1], time[2]))
return 1
