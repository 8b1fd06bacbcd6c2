-- Begins to open a shard: appends the first event of a new epoch to the outbox. The shard is closed until that is done.
--
-- KEYS  1 shard hash, 2 outbox, 3 relay lock
-- ARGV  1 the lock's token, 2 the new epoch
-- reply {1, position} the last position that this Redis knew when the shard was closed
--       {0} the lock has another holder, or the shard is open under this epoch or a higher one
--       an error EVICTS, followed by the policy: this server may evict keys, and the shard stays as it is
--
-- The event names the last position before it, so that the writer sees whether the log has lost events before it. The
-- position in the reply is kept until the shard is open: a second attempt returns that of the first. A shard whose
-- hash and outbox contradict each other is opened again under the same rules as a closed one.
local policy = string.match(call('INFO', 'memory'), 'maxmemory_policy:([%w-]+)')
if policy and policy ~= 'noeviction' then return redis.error_reply('EVICTS ' .. policy) end
local open = open_epoch()
if call('GET', KEYS[3]) ~= ARGV[1] or open and tonumber(open) >= tonumber(ARGV[2]) then return {0} end
local last = last_position(KEYS[1], KEYS[2])
local _, accepted = queued(KEYS[1], KEYS[2])
call('XADD', KEYS[2], ARGV[2] .. '-0', 'run', 'opened ' .. last, 'before', accepted)
call('HDEL', KEYS[1], 'epoch')
call('HSETNX', KEYS[1], 'restored', last)
call('HSET', KEYS[1], 'opening', ARGV[2], 'server', server(), 'last', ARGV[2] .. '-0')
return {1, call('HGET', KEYS[1], 'restored')}
