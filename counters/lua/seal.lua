-- Begins to open a closed shard: adds the first event of a new epoch to the end of the outbox.
--
-- KEYS  1 shard hash, 2 outbox, 3 relay lock
-- ARGV  1 the lock's token, 2 the new epoch, 3 the event shard.opened as JSON
-- reply {1, position} the last position in this Redis when the shard was closed
--       {0} the lock has another owner, or the shard is open
--
-- The position is stored until the shard is open. So a second attempt does not return the position of the event that
-- the first attempt added.
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return {0} end
if redis.call('HEXISTS', KEYS[1], 'epoch') == 1 then return {0} end
local last = '0-0'
if redis.call('EXISTS', KEYS[2]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[2])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
end
redis.call('XADD', KEYS[2], ARGV[2] .. '-0', 'e', ARGV[3])
redis.call('HSETNX', KEYS[1], 'restored', last)
redis.call('HSET', KEYS[1], 'opening', ARGV[2])
return {1, redis.call('HGET', KEYS[1], 'restored')}
