-- Makes a loaded target warm.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 set of its users, 4 the set as loaded from MySQL, 5 warming lock
-- ARGV  1 the lock's token, 2 the epoch in which the loading began, 3 now in ms
-- reply 1 warm, 0 the lock was lost or the shard was closed since, so the loaded set may be stale
--
-- A replay finds the target warm.
if redis.call('GET', KEYS[5]) ~= ARGV[1] or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then
  redis.call('UNLINK', KEYS[4])
  return 0
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('UNLINK', KEYS[4])
  return 1
end
redis.call('UNLINK', KEYS[3])
if redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('RENAME', KEYS[4], KEYS[3])
  redis.call('PERSIST', KEYS[3])
end
redis.call('HSET', KEYS[2], 'count', redis.call('SCARD', KEYS[3]), 'last', '0-0', 'at', ARGV[3])
return 1
