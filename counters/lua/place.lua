-- Makes loaded targets warm whose users are one set.
--
-- KEYS  for each target: its shard hash, its likes hash, its warming lock, and its set
-- ARGV  1 the token of the locks, which is also the name of the load; then for each target: the epoch in which its load
--       began, the number of its users, and the set in the form of DUMP
-- reply for each target: 1 warm; 0 the lock was lost or the shard closed meanwhile, so what was loaded may be old; or an
--       error, and the target stays cold
--
-- A replay finds the targets warm. A copy of the call that the network delivers late finds no locks.
local function place(shard, likes, warming, set, epoch, users, dump)
  local is = call('HGET', likes, 'load')
  if is then return is == ARGV[1] and 1 or 0 end
  if call('GET', warming) ~= ARGV[1] or open_epoch(shard) ~= epoch then return 0 end
  local waiting = call('EXISTS', likes .. ':waiting') == 1
  call('RESTORE', set, 0, dump, 'REPLACE')
  call('HSET', likes, 'count', users, 'sets', 1, 'load', ARGV[1], 'last', '0-0', 'at', milliseconds(),
    'since', call('HGET', shard, 'last'))
  if waiting then call('HSET', likes, 'waiting', 1) end
  call('DEL', warming)
  return 1
end

local replies = {}
for i = 0, #KEYS / 4 - 1 do
  local k, a = 4 * i, 3 * i + 1
  replies[i + 1] = attempt(place, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4],
    ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
end
return replies
