-- Closes a shard if the Redis server was restarted or replaced since the shard was opened. It is the first command on
-- every new connection. A server that was restarted or promoted may have lost its last acknowledged writes, so the
-- shard must be opened again before it accepts likes.
--
-- KEYS  1 shard hash
-- reply 1 this call closed the shard, 0 nothing changed
--
-- A restart changes the run id, and a promotion changes the replication id. The run id alone is not enough: a primary
-- that is demoted and promoted again still has the run id of its shards.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') .. ':' ..
  string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if redis.call('HGET', KEYS[1], 'run') == run then return 0 end
redis.call('HDEL', KEYS[1], 'epoch', 'opening')
redis.call('HSET', KEYS[1], 'run', run)
return 1
