-- Closes a shard, because the site leaves the gate for direct mode.
--
-- KEYS  1 shard hash, 2 outbox
-- reply {1, last position} the shard was open until now: Redis has lost nothing that it accepted
--       {0, last position} it was closed
--
-- The position is kept. A replay finds the shard closed: the site stays gated, and a relay opens the shard.
local last = last_position(KEYS[1], KEYS[2])
local open = open_epoch()
call('HDEL', KEYS[1], 'epoch', 'opening')
return {open and 1 or 0, last}
