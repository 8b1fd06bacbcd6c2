-- Counts actions against limits, by the generic cell rate algorithm.
--
-- KEYS  the limits of an owner, one key for each call: a sorted set of their names, each with the time when its burst
--       is refilled (µs)
-- ARGV  for each call: the limit, its burst, the time between two actions (µs), and the number of actions; 0 only reads
--       the limit
-- reply for each call: 1 if the actions are admitted, 0 if not, -1 if the key is damaged; the number of actions left; µs
--       until the actions would be admitted; µs until the burst is refilled
--
-- A limit whose burst seems to be refilled later than its window from now is from before the clock was set back. Its
-- window begins now. A replay counts twice. A key expires with the last of its limits. Each call removes at most 16 expired members.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function take(key, limit, burst, every, n)
  local whole = call('ZSCORE', key, limit)
  local spent = whole and math.max(0, tonumber(whole) - now) or 0
  if spent > burst * every then
    spent = burst * every
    call('ZADD', key, string.format('%.0f', now + spent), limit)
  end
  local room = burst * every - spent - n * every
  if room < 0 then return 0, 0, -room, spent end
  if n > 0 then
    spent = spent + n * every
    local last = string.format('%.0f', now + spent)
    call('ZADD', key, last, limit)
    if call('ZCARD', key) > 1 then
      local over = call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now), 'LIMIT', 0, 16)
      if #over > 0 then call('ZREM', key, unpack(over)) end
      last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
    end
    call('PEXPIREAT', key, string.format('%.0f', math.ceil(last / 1000)))
  end
  return 1, math.floor(room / every), 0, spent
end

local replies = {}
for i, key in ipairs(KEYS) do
  local at = 4 * i - 3
  local ok, taken, left, wait, spent =
    pcall(take, key, ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  if not ok then taken, left, wait, spent = -1, 0, 0, 0 end
  replies[at], replies[at + 1], replies[at + 2], replies[at + 3] = taken, left, wait, spent
end
return replies
