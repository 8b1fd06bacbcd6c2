-- Makes targets cold while their shard is being opened.
--
-- KEYS  1 shard hash, 2 relay lock, 3 garbage of the shard, then likes hashes of targets
-- ARGV  1 the lock's token, 2 the epoch of the opening
-- reply 1 done; 0 the lock has another holder, or this opening is over: the shard may be open by now, and what is warm
--       in an open shard is the truth
if call('GET', KEYS[2]) ~= ARGV[1] or call('HGET', KEYS[1], 'opening') ~= ARGV[2] then return 0 end
for i = 4, #KEYS do
  local target = call('HMGET', KEYS[i], 'load', 'sets')
  if target[1] and target[2] then
    call('ZADD', KEYS[3], milliseconds(), KEYS[i] .. ':' .. target[1] .. ' ' .. target[2])
  end
  call('DEL', KEYS[i])
end
return 1
