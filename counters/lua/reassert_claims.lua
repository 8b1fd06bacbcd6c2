-- Appends the present state of some claims of one drop to the outbox once more, for the reconciler.
--
-- KEYS  1 shard hash, 2 outbox, 3 claims hash of the drop
-- ARGV  1 words that the outbox may hold, 2 the short name of the drop, 3 '' or a position since before which it must
--       have been warm, then "USER ID" for each claim
-- reply the number of words; -1 the shard is closed, -2 the drop is cold, was loaded since, or is damaged, -4 the outbox
--       is full
--
-- A claim that its user holds is sent as claimed, any other as returned; the version of the settings is sent, too. What
-- the writer has seen before has no effect, so one too many does no harm, and neither does a replay. An outbox that is
-- not full takes all words, however low its limit is.
local epoch = open_epoch()
if not epoch then return -1 end
local drop = call('HMGET', KEYS[3], 'count', 'version', 'load')
if not (drop[1] and drop[2] and drop[3] and holds(KEYS[3], ARGV[3])) then return -2 end
local claims = KEYS[3] .. ':' .. drop[3] .. ':0'
if call('HLEN', claims) ~= drop[1] + 1 then return -2 end
local words, accepted = queued(KEYS[1], KEYS[2])
if words >= tonumber(ARGV[1]) then return -4 end
local run = {}
for i = 4, #ARGV do
  local user, id = string.match(ARGV[i], '^(%d+) (%d+)$')
  run[i - 3] = (call('HGET', claims, user) == id and '+' or '-') .. user .. ':' .. id
end
run[#run + 1] = '=' .. drop[2]
local position = append(KEYS[1], KEYS[2], epoch,
  'claims ' .. milliseconds() .. ' ' .. ARGV[2] .. ' ' .. table.concat(run, ' '), #run, accepted)
call('HSET', KEYS[3], 'last', position)
return #run
