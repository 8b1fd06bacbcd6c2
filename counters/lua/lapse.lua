-- Makes a call of the gate late whose callers have given up, wherever it is.
--
-- KEYS  1 shard hash
-- ARGV  1 the deadline of the call, in ms; 2 the epoch and 3 the turn in which its process read the clock
-- reply 1 a new turn has begun, because the clock has not reached the deadline: it was set back, or stood still;
--       0 the call was late already
--
-- The time after the deadline is noted as seen, so that a clock that is set back to before it begins a new turn with
-- the next call, also of a process that has not read the clock yet. A replay finds another turn, or an earlier time.
local shard = call('HMGET', KEYS[1], 'epoch', 'turn', 'seen')
if shard[1] ~= ARGV[2] or (shard[2] or '0') ~= ARGV[3] then return 0 end
local now = milliseconds()
if now <= tonumber(ARGV[1]) then
  call('HINCRBY', KEYS[1], 'turn', 1)
  return 1
end
if now > tonumber(shard[3] or 0) then call('HSET', KEYS[1], 'seen', tostring(now)) end
return 0
