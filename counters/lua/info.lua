-- Returns the state of a shard.
--
-- KEYS  1 shard hash, 2 outbox, 3 relay lock
-- reply {open, holder, likes, entries, last position, first run}: open is 0 or 1, holder '' when nobody holds the lock;
--       likes and entries count what the outbox holds
local last, head = '0-0', nil
local entries = call('XLEN', KEYS[2])
if call('EXISTS', KEYS[2]) == 1 then
  local info = call('XINFO', 'STREAM', KEYS[2])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
  head = call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
end
return {open_epoch() and 1 or 0, call('GET', KEYS[3]) or '', (queued(KEYS[1], KEYS[2])), entries, last,
  head and head[2][2] or ''}
