-- Ends the opening of a shard: it accepts likes from now on.
--
-- KEYS  1 shard hash, 2 relay lock
-- ARGV  1 the lock's token, 2 the epoch
-- reply 1 open, 0 the lock has another holder, or the server was restarted or replaced since the opening began
if call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local shard = call('HMGET', KEYS[1], 'opening', 'server')
if shard[1] ~= ARGV[2] or shard[2] ~= server() then return 0 end
call('HSET', KEYS[1], 'epoch', ARGV[2])
call('HDEL', KEYS[1], 'opening', 'restored')
return 1
