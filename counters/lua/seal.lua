-- Begins to open a shard: appends the first event of a new epoch to the outbox. The shard is closed until that is done.
--
-- KEYS  1 shard hash, 2 outbox, 3 relay lock
-- ARGV  1 the lock's token, 2 the new epoch
-- reply {1, position} the last position that this Redis knew when the shard was closed
--       {0} the lock has another holder, or the shard is open under this epoch or a higher one
--
-- The event names the last position before it, so that the writer sees whether the log has lost events before it. The
-- position in the reply is kept until the shard is open: a second attempt returns that of the first.
local open = open_epoch()
if call('GET', KEYS[3]) ~= ARGV[1] or open and tonumber(open) >= tonumber(ARGV[2]) then return {0} end
local last = '0-0'
if call('EXISTS', KEYS[2]) == 1 then
  local info = call('XINFO', 'STREAM', KEYS[2])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
end
local _, accepted = queued(KEYS[1], KEYS[2])
call('XADD', KEYS[2], ARGV[2] .. '-0', 'run', 'opened ' .. last, 'before', accepted)
call('HDEL', KEYS[1], 'epoch')
call('HSETNX', KEYS[1], 'restored', last)
call('HSET', KEYS[1], 'opening', ARGV[2], 'server', server())
return {1, call('HGET', KEYS[1], 'restored')}
