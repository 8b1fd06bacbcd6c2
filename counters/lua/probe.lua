-- Appends an event that changes nothing to the outbox of an open shard.
--
-- KEYS  1 shard hash, 2 outbox
-- reply 1 done, 0 the shard is closed
local epoch = open_epoch()
if not epoch then return 0 end
local _, accepted = queued(KEYS[1], KEYS[2])
append(KEYS[1], KEYS[2], epoch, 'probed', 0, accepted)
return 1
