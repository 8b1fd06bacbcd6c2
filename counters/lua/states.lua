-- Returns the likes of targets of one shard as a viewer sees them.
--
-- KEYS  1 shard hash, then the likes hashes of targets
-- ARGV  1 user id of the viewer, 0 for the anonymous
-- reply for each target its count and 1 if the viewer likes it, else 0; plus 2 if it was deleted.
--       The count is -1 if the target is cold or damaged, or the shard closed.
local replies, epoch = {}, open_epoch()
for k = 2, #KEYS do
  local target = epoch and redis.pcall('HMGET', KEYS[k], 'count', 'sets', 'load', 'closed') or {}
  local count, sets, liked = tonumber(target[1] or nil), tonumber(target[2] or nil), 0
  if count and sets and target[3] then
    if ARGV[1] ~= '0' then
      local is = redis.pcall('SMISMEMBER', set_of(KEYS[k], target[3], sets, ARGV[1]), 0, ARGV[1])
      if is.err or is[1] == 0 then count = nil else liked = is[2] end
    end
    if target[4] then liked = liked + 2 end
  else
    count = nil
  end
  replies[2 * k - 3], replies[2 * k - 2] = count or -1, liked
end
return replies
