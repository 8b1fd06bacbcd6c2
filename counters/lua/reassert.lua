-- Adds the current state of some users' likes of one target to the outbox again, for the reconciler.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 set of its users, 4 outbox of the shard
-- ARGV  1 most entries the outbox may hold; then three for each user: user id, event if liked, event if not
-- reply the number of events written; -1 the shard is closed, -2 the target is cold or its set damaged, -4 the outbox
--       is full
--
-- Events hold the resulting state, so additional events and replays are harmless.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return -1 end
if tonumber(redis.call('HGET', KEYS[2], 'count')) ~= redis.call('SCARD', KEYS[3]) then return -2 end
local users = (#ARGV - 1) / 3
if redis.call('XLEN', KEYS[4]) + users > tonumber(ARGV[1]) then return -4 end
local id
for i = 2, #ARGV, 3 do
  local liked = redis.call('SISMEMBER', KEYS[3], ARGV[i]) == 1
  id = redis.call('XADD', KEYS[4], epoch .. '-*', 'e', liked and ARGV[i + 1] or ARGV[i + 2])
end
if id then redis.call('HSET', KEYS[2], 'last', id) end
return users
