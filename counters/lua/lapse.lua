-- Makes a call of the gate late whose callers have given up, wherever it is.
--
-- KEYS  1 shard hash
-- ARGV  1 the deadline of the call, in ms; 2 the epoch and 3 the turn in which its process read the clock
-- reply 1 a new turn has begun, because the clock has not reached the deadline: it was set back, or stood still;
--       0 the call was late already
--
-- A replay finds another turn.
local shard = call('HMGET', KEYS[1], 'epoch', 'turn')
if shard[1] ~= ARGV[2] or (shard[2] or '0') ~= ARGV[3] or milliseconds() > tonumber(ARGV[1]) then return 0 end
call('HINCRBY', KEYS[1], 'turn', 1)
return 1
