-- Removes sets that no target uses: those of targets that are cold, and of loads that were given up.
--
-- KEYS  1 garbage of the shard: see cool.lua
-- ARGV  1 sets to remove at most
-- reply the number of sets removed; 0 nothing is due
--
-- No entry is due later than a minute from now: see load.lua. One that seems so is from before the clock was set back.
-- While a slot moves to another node, Redis refuses keys that are there already. The entry stays until all of its sets
-- are removed.
local now = milliseconds()
local due = call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1] or
  call('ZRANGEBYSCORE', KEYS[1], '(' .. now + 60000, '+inf', 'LIMIT', 0, 1)[1]
if not due then return 0 end
local prefix, sets = string.match(due, '^(.*) (%d+)$')
local left = math.max(0, sets - tonumber(ARGV[1]))
for i = left, sets - 1 do call('UNLINK', prefix .. ':' .. i) end
call('ZREM', KEYS[1], due)
if left > 0 then call('ZADD', KEYS[1], 0, prefix .. ' ' .. left) end
return sets - left
