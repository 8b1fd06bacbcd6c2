-- Makes a loaded drop warm.
--
-- KEYS  1 shard hash, 2 claims hash of the drop, 3 warming lock, 4 garbage of the shard
-- ARGV  1 the lock's token, which is also the name of the load; 2 the epoch in which it began; 3 the number of claims;
--       4 stock, 5 begins, 6 ends (in ms; 0 for none), 7 the version of these settings
-- reply 1 warm; 0 the lock was lost or the shard closed meanwhile, so what was loaded may be old; or claims are missing,
--       because Redis refused them. What was loaded is swept
--
-- A replay finds the drop warm.
local is = call('HGET', KEYS[2], 'load')
if is then return is == ARGV[1] and 1 or 0 end
if call('GET', KEYS[3]) ~= ARGV[1] or open_epoch() ~= ARGV[2] then return 0 end
if call('HLEN', KEYS[2] .. ':' .. ARGV[1] .. ':0') ~= ARGV[3] + 1 then return 0 end
if call('ZREM', KEYS[4], KEYS[2] .. ':' .. ARGV[1] .. ' 1') == 0 then return 0 end
call('HSET', KEYS[2], 'count', ARGV[3], 'sets', 1, 'load', ARGV[1], 'last', '0-0', 'at', milliseconds(),
  'stock', ARGV[4], 'begins', ARGV[5], 'ends', ARGV[6], 'version', ARGV[7], 'sent', 0,
  'since', call('HGET', KEYS[1], 'last'))
call('DEL', KEYS[3])
return 1
