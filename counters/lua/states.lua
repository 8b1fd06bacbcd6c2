-- Returns the likes of targets as a viewer sees them.
--
-- KEYS  for each shard its hash, then the likes hashes of its targets; in a cluster, one shard
-- ARGV  1 user id of the viewer, 0 for the anonymous
-- reply for each target its count and 1 if the viewer likes it, else 0; plus 2 if it was deleted.
--       The count is -1 if the target is damaged or the shard closed, and -2 if the target is cold: MySQL has all of
--       its likes.
local replies, n, epoch = {}, 0, nil
for _, key in ipairs(KEYS) do
  if string.sub(key, -6) == ':shard' then
    epoch = open_epoch(key)
  else
    local target = epoch and redis.pcall('HMGET', key, 'count', 'sets', 'load', 'closed') or {}
    local count, sets, liked = tonumber(target[1] or nil), tonumber(target[2] or nil), 0
    if count and sets and target[3] then
      if ARGV[1] ~= '0' then
        local is = redis.pcall('SMISMEMBER', set_of(key, target[3], sets, ARGV[1]), 0, ARGV[1])
        if is.err or is[1] == 0 then count = nil else liked = is[2] end
      end
      if target[4] then liked = liked + 2 end
    else
      count = epoch and not (target.err or target[1] or target[2] or target[3] or target[4]) and -2 or nil
    end
    replies[n + 1], replies[n + 2] = count or -1, liked
    n = n + 2
  end
end
return replies
