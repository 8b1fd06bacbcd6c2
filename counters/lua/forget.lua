-- Forgets keys of targets while a shard is being opened.
--
-- KEYS  1 shard hash, 2 relay lock, then the keys to forget
-- ARGV  1 the lock's token, 2 the epoch of the opening
-- reply 1 forgotten; 0 the lock is somebody else's, or this opening is over: the shard may be open by now, and what is
--       warm in an open shard is the truth
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('HGET', KEYS[1], 'opening') ~= ARGV[2] then return 0 end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
