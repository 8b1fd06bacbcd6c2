-- Makes a loaded target warm.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 warming lock, 4 garbage of the shard
-- ARGV  1 the lock's token, which is also the name of the load; 2 the epoch in which it began; 3 the number of its sets;
--       4 the number of users
-- reply 1 warm; 0 the lock was lost or the shard closed meanwhile, so what was loaded may be old; or a set is missing,
--       because Redis refused it. What was loaded is swept
--
-- A replay finds the target warm.
local is = call('HGET', KEYS[2], 'load')
if is then return is == ARGV[1] and 1 or 0 end
if call('GET', KEYS[3]) ~= ARGV[1] or open_epoch() ~= ARGV[2] then return 0 end
local sets, wide = tonumber(ARGV[3]), 1
while wide < sets do wide = wide * 4 end
local base, split = wide / 4, sets - 3 * wide / 4 -- as in sets.go
for first = 0, sets - 1, 1000 do
  local keys = {}
  for i = first, math.min(first + 999, sets - 1) do
    if i < base or i % base < split then keys[#keys + 1] = KEYS[2] .. ':' .. ARGV[1] .. ':' .. i end
  end
  if #keys > 0 and call('EXISTS', unpack(keys)) < #keys then return 0 end
end
if call('ZREM', KEYS[4], KEYS[2] .. ':' .. ARGV[1] .. ' ' .. ARGV[3]) == 0 then return 0 end
call('HSET', KEYS[2], 'count', ARGV[4], 'sets', ARGV[3], 'load', ARGV[1], 'last', '0-0', 'at', milliseconds(),
  'since', call('HGET', KEYS[1], 'last'))
if call('EXISTS', KEYS[2] .. ':waiting') == 1 then call('HSET', KEYS[2], 'waiting', 1) end
call('DEL', KEYS[3])
return 1
