-- The gate: sets or removes one user's like of one target.
--
-- KEYS  1 shard hash, 2 likes hash of the target, 3 set of its users, 4 outbox of the shard
-- ARGV  1 '1' to like, '0' to unlike; 2 user id; 3 the event as JSON; 4 most entries the outbox may hold; 5 now in ms;
--       6 until when the caller waits, in ms on this server's clock
-- reply {0, count, changed, clock} done: the user's like is as asked, count is the number of likes, changed is 0 or 1,
--       clock is this server's in ms
--       {1} the shard is closed   {2} the target is cold   {4} the outbox is full
--       {3, mark} the target was deleted: see close.lua
--       {5} the counter and the set disagree: one of the keys was lost or tampered with, and neither can be trusted
--       {6, clock} too late: the caller has given up
--
-- A delayed call may arrive after its caller has given up and made the opposite call. It must not undo that call, so
-- late calls are refused. A replay finds the like as asked and answers the same with changed 0. Every key is read
-- before the first write, so a key of a wrong type fails the script before anything has changed; XADD goes first
-- because it is the only write that can still be refused.
local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
if clock > tonumber(ARGV[6]) then return {6, clock} end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return {1} end
local target = redis.call('HMGET', KEYS[2], 'count', 'closed')
if not target[1] then return {2} end
if target[2] then return {3, tonumber(target[2])} end
local size = redis.call('SCARD', KEYS[3])
if tonumber(target[1]) ~= size then return {5} end
local want = tonumber(ARGV[1])
if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == want then return {0, size, 0, clock} end
if redis.call('XLEN', KEYS[4]) >= tonumber(ARGV[4]) then return {4} end

local id = redis.call('XADD', KEYS[4], epoch .. '-*', 'e', ARGV[3])
redis.call(want == 1 and 'SADD' or 'SREM', KEYS[3], ARGV[2])
local count = size + want * 2 - 1
redis.call('HSET', KEYS[2], 'count', count, 'last', id, 'at', ARGV[5])
return {0, count, 1, clock}
