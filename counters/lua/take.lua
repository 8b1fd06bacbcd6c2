-- Counts actions against a limit, by the generic cell rate algorithm.
--
-- KEYS  1 the limits of one owner: a sorted set of their names, each with the time when its burst is refilled (µs)
-- ARGV  1 the limit, 2 its burst, 3 the time between two actions (µs), 4 the number of actions; 0 only reads the limit
-- reply {1 if the actions are admitted, else 0; the number of actions left; µs until the actions would be admitted;
--       µs until the burst is refilled}
--
-- A replay counts twice. The key expires with the last of its limits. Each call removes at most 16 expired members.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local burst, every, n = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local whole = redis.call('ZSCORE', KEYS[1], ARGV[1])
local spent = whole and math.max(0, tonumber(whole) - now) or 0
local room = burst * every - spent - n * every
if room < 0 then return {0, 0, -room, spent} end
if n > 0 then
  spent = spent + n * every
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + spent), ARGV[1])
  local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, 16)
  if #over > 0 then redis.call('ZREM', KEYS[1], unpack(over)) end
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.ceil(last[2] / 1000)))
end
return {1, math.floor(room / every), 0, spent}
