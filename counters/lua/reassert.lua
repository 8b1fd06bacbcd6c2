-- Appends the present state of some users' likes of one target to the outbox once more, for the reconciler.
--
-- KEYS  1 shard hash, 2 outbox, 3 likes hash of the target
-- ARGV  1 likes that the outbox may hold, 2 the short name of the target, 3 '' or a position since before which it must
--       have been warm, then user ids
-- reply the number of likes; -1 the shard is closed, -2 the target is cold, was loaded since, or is damaged, -4 the
--       outbox is full
--
-- Events are absolute, so one too many does no harm, and neither does a replay. An outbox that is not full takes all of
-- the users, however low its limit is. A user whose set is lost is left out: MySQL may know better.
local epoch = open_epoch()
if not epoch then return -1 end
local target = call('HMGET', KEYS[3], 'count', 'sets', 'load')
if not (target[1] and target[2] and target[3] and holds(KEYS[3], ARGV[3])) then return -2 end
local likes, accepted = queued(KEYS[1], KEYS[2])
if likes >= tonumber(ARGV[1]) then return -4 end
local run = {}
for i = 4, #ARGV do
  local is = call('SMISMEMBER', set_of(KEYS[3], target[3], tonumber(target[2]), ARGV[i]), 0, ARGV[i])
  if is[1] == 1 then run[#run + 1] = (is[2] == 1 and '' or '-') .. ARGV[i] end
end
if #run == 0 then return 0 end
local id = append(KEYS[1], KEYS[2], epoch,
  'likes ' .. milliseconds() .. ' ' .. ARGV[2] .. ' ' .. table.concat(run, ' '), #run, accepted)
call('HSET', KEYS[3], 'last', id)
return #run
