-- Closes a shard whose positions have gone back, as when a server is set back to a snapshot, or another Redis has
-- served the site. What this shard appends would be dropped as applied before.
--
-- KEYS  1 shard hash, 2 outbox
-- ARGV  1 a position that MySQL had applied before this call; 2 the epoch in which the relay has read positions again
--       that it had trimmed, or ''
-- reply 1 the shard was open, and is closed now; 0 it is closed already, or has had that position
--
-- This Redis has lost writes, whatever it appends until the shard is sealed. So the position of restored is one from
-- before the loss, and the targets are forgotten.
local epoch = open_epoch()
if not epoch then return 0 end
local restored = '0-0'
if ARGV[2] ~= epoch then
  restored = last_position(KEYS[1], KEYS[2])
  if not after(ARGV[1], restored) then return 0 end
end
call('HDEL', KEYS[1], 'epoch')
call('HSET', KEYS[1], 'restored', restored)
return 1
