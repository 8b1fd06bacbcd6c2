-- Takes the locks of targets that are to be loaded.
--
-- KEYS  for each target: its warming lock, its shard hash, and its likes hash
-- ARGV  1 the token of the locks, 2 how long to hold them, in ms
-- reply for each target: an error, or {1 the lock is held, 0 it has another holder; the epoch of the shard, or '' if it
--       is closed; 1 the target is warm, 0 it is cold}
--
-- A replay finds its own locks.
local function lock(warming, shard, likes)
  local epoch, warm = call('HGET', shard, 'epoch') or '', call('EXISTS', likes)
  local token = holder(warming, ARGV[2])
  if token and token ~= ARGV[1] then return {0, epoch, warm} end
  call('SET', warming, ARGV[1], 'PX', ARGV[2])
  return {1, epoch, warm}
end

local replies = {}
for i = 0, #KEYS / 3 - 1 do
  replies[i + 1] = attempt(lock, KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3])
end
return replies
