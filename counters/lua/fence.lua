-- Closes a shard if the Redis server is another one, or another run of it, than the one that the shard was opened on.
-- It runs on every new connection before anything else does: a server that was restarted or promoted may have lost
-- the last of what it acknowledged, and nothing may build on that before the shard is opened again.
--
-- KEYS  1 shard hash
-- reply 1 the shard is closed by this call, 0 it is as it was
-- The run id changes with a restart, the replication id with a promotion: a primary that was cut off and is promoted
-- again has the run id that its own shards name.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('HGET', KEYS[1], 'run') == run then return 0 end
redis.call('HDEL', KEYS[1], 'epoch', 'opening')
redis.call('HSET', KEYS[1], 'run', run)
return 1
