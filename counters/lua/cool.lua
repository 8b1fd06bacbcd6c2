-- Makes a target cold that is idle and clean: MySQL has all of it.
--
-- KEYS  1 likes hash of the target, 2 garbage of the shard
-- ARGV  1 and 2 epoch and seq of the shard's watermark in MySQL, read before this call; 3 how long it must have been
--       idle, in ms
-- reply 1 cold, 0 still in use, or not yet written to MySQL
--
-- One DEL takes the target away; its sets are swept later: see load.lua. The watermark only moves forward, so an old one is merely cautious. A replay finds
-- nothing. A hash that lost a field is left alone: it must not keep the janitor from the others.
local target = call('HMGET', KEYS[1], 'last', 'at', 'load', 'sets')
local epoch, seq = string.match(target[1] or '', '^(%d+)-(%d+)$')
local at, now = tonumber(target[2] or nil), milliseconds()
if not epoch or not at or not target[3] or not target[4] or now - at < tonumber(ARGV[3]) then return 0 end
epoch, seq = tonumber(epoch), tonumber(seq)
local applied_epoch, applied_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > applied_epoch or (epoch == applied_epoch and seq > applied_seq) then return 0 end
call('ZADD', KEYS[2], now, KEYS[1] .. ':' .. target[3] .. ' ' .. target[4])
call('DEL', KEYS[1])
return 1
