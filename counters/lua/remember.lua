-- Remembers the watermark of a shard, so that a MySQL that was set back is noticed.
--
-- KEYS  1 shard hash, 2 relay lock
-- ARGV  1 the lock's token, 2 the watermark, which was read from MySQL before this call; 3 1 to close the shard if a
--       later one is known, else 0
-- reply the latest watermark known; '' the lock has another holder
--
-- A replay changes nothing.
if call('GET', KEYS[2]) ~= ARGV[1] then return '' end
local applied = call('HGET', KEYS[1], 'applied')
if not applied or not string.find(applied, '^%d+-%d+$') or after(ARGV[2], applied) then
  call('HSET', KEYS[1], 'applied', ARGV[2])
  return ARGV[2]
end
if ARGV[3] == '1' and after(applied, ARGV[2]) then call('HDEL', KEYS[1], 'epoch', 'opening') end
return applied
