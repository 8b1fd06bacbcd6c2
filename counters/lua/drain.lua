-- Closes a shard on the way to direct mode.
--
-- KEYS  1 shard hash, 2 outbox
-- reply {1, last position} the shard was open until now: Redis has lost nothing that it accepted
--       {0, last position} it was closed
--
-- The position is kept. After a replay, or in a second attempt, the shard counts as open if the server is still the one
-- that it was opened on, and nothing was appended since.
local last = last_position(KEYS[1], KEYS[2])
local shard = call('HMGET', KEYS[1], 'server', 'drained')
local open = open_epoch() or shard[1] == server() and shard[2] == last
call('HDEL', KEYS[1], 'epoch', 'opening')
if not open then return {0, last} end
call('HSET', KEYS[1], 'drained', last)
return {1, last}
