-- Returns drops as a viewer sees them.
--
-- KEYS  for each shard its hash, then the claims hashes of its drops; in a cluster, one shard
-- ARGV  1 user id of the viewer, 0 for the anonymous
-- reply for each drop its count of claims, its stock, when it begins and ends (in ms; 0 for none), the version of these
--       settings, the id of the viewer's claim or '', and 1 if it was deleted, else 0. The count is -1 if the drop is
--       cold or damaged, or the shard closed.
local replies, n, epoch = {}, 0, nil
for _, key in ipairs(KEYS) do
  if string.sub(key, -6) == ':shard' then
    epoch = open_epoch(key)
  else
    local drop = epoch and
      redis.pcall('HMGET', key, 'count', 'stock', 'begins', 'ends', 'version', 'load', 'closed') or {}
    local count, claim = tonumber(drop[1] or nil), ''
    for i = 1, 5 do drop[i] = tonumber(drop[i] or nil) end
    if count and drop[2] and drop[3] and drop[4] and drop[5] and drop[6] then
      local claims = key .. ':' .. drop[6] .. ':0'
      if redis.pcall('HLEN', claims) ~= count + 1 then
        count = nil
      elseif ARGV[1] ~= '0' then
        claim = redis.pcall('HGET', claims, ARGV[1]) or ''
        if type(claim) == 'table' then count, claim = nil, '' end
      end
    else
      count = nil
    end
    replies[n + 1], replies[n + 2], replies[n + 3] = count or -1, count and drop[2] or 0, count and drop[3] or 0
    replies[n + 4], replies[n + 5], replies[n + 6] = count and drop[4] or 0, count and drop[5] or 0, claim
    replies[n + 7] = drop[7] and 1 or 0
    n = n + 7
  end
end
return replies
