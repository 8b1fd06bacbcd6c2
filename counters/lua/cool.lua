-- Makes a target cold that is idle and clean: MySQL has all of it.
--
-- KEYS  1 likes hash of the target, 2 garbage of the shard
-- ARGV  1 and 2 epoch and seq of the shard's watermark in MySQL, read before this call; 3 how long it must have been
--       idle, in ms
-- reply 1 cold, 0 still in use, or not yet written to MySQL
--
-- One DEL takes the target away; its sets are swept later: see load.lua. The watermark only moves forward, so an old
-- one is merely cautious. A replay finds nothing. A hash that lost its last position is left alone, because nothing
-- shows whether MySQL has all of it. It must not keep the janitor from the others.
local target = redis.pcall('HMGET', KEYS[1], 'last', 'at', 'load', 'sets')
if target.err then return 0 end
local epoch, seq = string.match(target[1] or '', '^(%d+)-(%d+)$')
local at, now = tonumber(target[2] or 0) or 0, milliseconds()
if not epoch or now - at < tonumber(ARGV[3]) then return 0 end
epoch, seq = tonumber(epoch), tonumber(seq)
local applied_epoch, applied_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > applied_epoch or (epoch == applied_epoch and seq > applied_seq) then return 0 end
if target[3] and tonumber(target[4] or nil) then
  call('ZADD', KEYS[2], now, KEYS[1] .. ':' .. target[3] .. ' ' .. target[4])
end
call('DEL', KEYS[1])
return 1
