-- Precedes like.lua and claim.lua: what both do with the likes or claims of a call, which are its words.
--
-- KEYS  for each shard: its hash, its outbox, and a hash for each target
-- ARGV  1 words that an outbox may hold; then for each shard: the earliest time, the deadline, the epoch, the turn and
--       the number of targets; for each target: its short name, the number of its words, and the words (see like.lua)
-- reply that of the script
local KEYS, ARGV = KEYS, ARGV
local protected = pcall
local call, pcall, sub, find, match = redis.call, redis.pcall, string.sub, string.find, string.match
local tonumber = tonumber
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = tostring(now)
local info = call('INFO', 'replication')
if not find(info, 'role:master\r', 1, true) then return {err = 'READONLY this server is a replica'} end
local full_memory = false

-- refused returns the status of a word for which a key of its target replied with an error.
local function refused(reply)
  if find(reply.err, 'WRONGTYPE', 1, true) then return 5 end
  if find(reply.err, 'OOM', 1, true) then full_memory = true end
  return 10
end

-- refuses reports whether a refusal that ends at a time is in force. None is longer than a minute: see refuse.lua.
local function refuses(ends)
  ends = tonumber(ends)
  return now < ends and ends <= now + 60000
end

-- admit checks that a shard is open, and that the call is in time. The shard's keys begin at KEYS[key], its targets at
-- ARGV[arg]. If all is well, admit returns the shard: its epoch, the number of its last event (seq), how many words it
-- has accepted, for how many more its outbox has room, how many have left it if they were counted (relayed), and the key
-- of the users who are refused. Otherwise it returns nil, and the shard's part of the reply.
local function admit(key, arg)
  local shard = call('HMGET', KEYS[key], 'epoch', 'server', 'accepted', 'refusing', 'relayed', 'last',
    'turn', 'seen')
  local seq = shard[1] and match(shard[6] or '', '^' .. shard[1] .. '%-(%d+)$')
  if not seq or not shard[2] or not find(info, 'master_replid:' .. shard[2] .. '\r', 1, true) then
    return nil, {1, now}
  end
  if now < 1000 or now >= 2147483647000 then return nil, {14, now} end
  local turn, seen = shard[7] or '0', tonumber(shard[8] or 0)
  local current = shard[1] == ARGV[arg - 3] and turn == ARGV[arg - 2]
  if now < seen or current and now < tonumber(ARGV[arg - 5]) then
    turn, seen, current = call('HINCRBY', KEYS[key], 'turn', 1), 0, false
  end
  if now >= seen + 1000 then pcall('HSET', KEYS[key], 'seen', at) end
  if not current or now > tonumber(ARGV[arg - 4]) then
    return nil, {6, now, tonumber(shard[1]), tonumber(turn), call('HGET', KEYS[key], 'site') or ''}
  end
  local accepted, counted = tonumber(shard[3] or 0), nil
  -- At least so many words have left the outbox. How many exactly matters only when it seems full.
  local room = ARGV[1] - (accepted - tonumber(shard[5] or 0))
  if room < #ARGV then
    local first = call('XRANGE', KEYS[key + 1], '-', '+', 'COUNT', 1)[1]
    counted = tonumber(first and first[2][4] or accepted)
    room = ARGV[1] - (accepted - counted)
  end
  return {
    epoch = shard[1], seq = seq, before = shard[3] or '0', accepted = accepted, room = room, relayed = counted,
    refusing = shard[4] and refuses(shard[4]) and string.gsub(KEYS[key], 'shard$', 'refused'),
  }
end

-- append appends the event of these words to the outbox of a shard, and returns its position. If Redis cannot store it,
-- append returns nil and the error.
local function append(key, shard, kind, words)
  local position = shard.epoch .. string.format('-%d', shard.seq + 1)
  local added = pcall('XADD', KEYS[key + 1], position,
    'run', kind .. ' ' .. at .. ' ' .. table.concat(words, ' '), 'before', shard.before)
  if type(added) == 'table' then return nil, added end
  if shard.relayed then call('HSET', KEYS[key], 'relayed', shard.relayed) end
  call('HSET', KEYS[key], 'accepted', string.format('%d', shard.accepted + #words), 'last', position)
  return position
end

-- each_shard calls serve for each shard, and returns the reply. An error of one leaves the others alone.
local function each_shard(serve)
  local replies, key, arg = {}, 1, 7
  while key <= #KEYS do
    local ok, part = protected(serve, key, arg)
    if not ok and type(part) ~= 'table' then part = {err = part} end
    replies[#replies + 1] = part
    key = key + 2 + ARGV[arg - 1]
    for _ = 1, ARGV[arg - 1] do arg = arg + 2 + ARGV[arg + 1] end
    arg = arg + 5
  end
  return replies
end
