-- Returns the state of a shard.
--
-- KEYS  1 shard hash, 2 outbox, 3 relay lock
-- reply {open, holder, likes, entries, last position, first run}: open is 0 or 1, holder '' when nobody holds the lock;
--       likes and entries count what the outbox holds
local last, ahead = last_position(KEYS[1], KEYS[2])
local head = call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
return {open_epoch() and not ahead and 1 or 0, call('GET', KEYS[3]) or '', (queued(KEYS[1], KEYS[2])),
  call('XLEN', KEYS[2]), last, head and head[2][2] or ''}
