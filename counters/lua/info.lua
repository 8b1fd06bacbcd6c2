-- Returns the state of a shard.
--
-- KEYS  1 shard hash, 2 outbox, 3 relay lock
-- reply {open, holder, depth, last position, first event}: open is 0 or 1, holder is the token of the relay lock or '',
--       depth is the number of events in the outbox, and first event is '' if the outbox is empty
local depth, last, first = 0, '0-0', ''
if redis.call('EXISTS', KEYS[2]) == 1 then
  depth = redis.call('XLEN', KEYS[2])
  local info = redis.call('XINFO', 'STREAM', KEYS[2])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
  local head = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)
  if head[1] then first = head[1][2][2] end
end
return {redis.call('HEXISTS', KEYS[1], 'epoch'), redis.call('GET', KEYS[3]) or '', depth, last, first}
