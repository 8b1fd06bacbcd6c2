-- Returns the likes of targets as viewers see them.
--
-- KEYS  for each shard its hash, then the likes hashes of its targets; in a cluster, one shard
-- ARGV  user ids of the viewers, 0 for the anonymous, whose digit means nothing
-- reply for each target its count, 1 if it was deleted, else 0, and a string with a digit for each viewer: 1 if the
--       viewer likes it, else 0. The count is -1 if the target is damaged or the shard closed, and -2 if the target is
--       cold: MySQL has all of its likes.

-- liked_by returns the digits of the viewers, and nil if a set is damaged.
local function liked_by(key, load, sets)
  if ARGV[1] == '0' and not ARGV[2] then return '0' end
  if sets == 1 then
    local is = redis.pcall('SMISMEMBER', set_of(key, load, 1, 0), 0, unpack(ARGV))
    if is.err or is[1] == 0 then return nil end
    return table.concat(is, '', 2)
  end
  local digits = {}
  for i, viewer in ipairs(ARGV) do
    local is = redis.pcall('SMISMEMBER', set_of(key, load, sets, viewer), 0, viewer)
    if is.err or is[1] == 0 then return nil end
    digits[i] = is[2]
  end
  return table.concat(digits)
end

local replies, n, epoch = {}, 0, nil
for _, key in ipairs(KEYS) do
  if string.sub(key, -6) == ':shard' then
    epoch = open_epoch(key)
  else
    local target = epoch and redis.pcall('HMGET', key, 'count', 'sets', 'load', 'closed') or {}
    local count, sets, liked = tonumber(target[1] or nil), tonumber(target[2] or nil), nil
    if count and sets and target[3] then
      liked = liked_by(key, target[3], sets)
      if not liked then count = nil end
    else
      count = epoch and not (target.err or target[1] or target[2] or target[3] or target[4]) and -2 or nil
    end
    replies[n + 1], replies[n + 2], replies[n + 3] = count or -1, target[4] and 1 or 0, liked or ''
    n = n + 3
  end
end
return replies
