-- Precedes every script but like.lua, claim.lua, put.lua, put_claims.lua and take.lua. The first two follow
-- gate.lua, which checks the server, too. Redis runs the other three on no replica, because of their heads: see redis.go.
--
-- KEYS  1 shard hash, of a script that needs an open shard
-- reply that of the script
--
-- A replica has every key of its primary, and the same replication id, but perhaps not the latest writes. So a script
-- fails on a replica, even if it only reads. The error makes the client drop the connection.
--
-- A shard is open while it has an epoch and this server is the one that it was opened on. The replication id changes
-- when a server restarts, when it is promoted, and, without need, when its first replica comes or its last one has been
-- gone for an hour. A restart or a promotion can lose the last of what was acknowledged, and nothing may
-- build on the rest before the relay has opened the shard again.
local call = redis.call

local replication = call('INFO', 'replication') -- cannot change while a script runs
if not string.find(replication, 'role:master\r', 1, true) then
  return redis.error_reply('READONLY this server is a replica')
end

local function server() return string.match(replication, 'master_replid:(%x+)') end

-- open_epoch returns the epoch of a shard, by default that of KEYS[1], and nil if it is closed. A shard whose last
-- position is not of its epoch is closed, because nothing shows which position comes next.
local function open_epoch(key)
  local shard = call('HMGET', key or KEYS[1], 'epoch', 'server', 'last')
  if shard[1] and shard[2] == server() and string.match(shard[3] or '', '^(%d+)-%d+$') == shard[1] then
    return shard[1]
  end
end

-- after reports whether a position is later than another.
local function after(one, other)
  local epoch, seq = string.match(one, '^(%d+)-(%d+)$')
  local other_epoch, other_seq = string.match(other, '^(%d+)-(%d+)$')
  if epoch ~= other_epoch then return tonumber(epoch) > tonumber(other_epoch) end
  return tonumber(seq) > tonumber(other_seq)
end

-- last_position returns the last position that a shard has had. The hash keeps it, so that a lost outbox does not take
-- positions back. A lost hash is made up for by the outbox. ahead reports that the outbox has a later position than the
-- hash: the shard can append nothing until it is opened again.
local function last_position(shard, outbox)
  local last, ahead = call('HGET', shard, 'last'), false
  if not last or not string.find(last, '^%d+-%d+$') then last = '0-0' end
  if call('EXISTS', outbox) == 1 then
    local info = call('XINFO', 'STREAM', outbox)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' and after(info[i + 1], last) then last, ahead = info[i + 1], true end
    end
  end
  return last, ahead
end

-- milliseconds returns the time in milliseconds since 1970.
local function milliseconds()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- holder returns the token in a lock, or nil if the lock is free. A key expires at an instant, so after the clock was
-- set back, a lock would last for as much longer. No lock is held for more than a minute at a time, or ttl ms if that is
-- more. So one with more time left is free.
local function holder(lock, ttl)
  local token = call('GET', lock)
  if token and call('PTTL', lock) <= math.max(60000, ttl) then return token end
end

-- queued returns the number of likes in the outbox: those ever accepted, minus those accepted before its first entry.
local function queued(shard, outbox)
  local accepted = tonumber(call('HGET', shard, 'accepted') or 0)
  local first = call('XRANGE', outbox, '-', '+', 'COUNT', 1)[1]
  return accepted - (first and first[2][4] or accepted), accepted
end

-- holds reports whether a target has been warm since before a position, and so holds what became of it. A target that
-- was loaded later knows no more than MySQL. '' stands for any position.
local function holds(likes, position)
  if position == '' then return true end
  local since = call('HGET', likes, 'since')
  return since and after(position, since)
end

-- append adds a run of likes to the outbox of an open shard under the next position, which it returns.
local function append(shard, outbox, epoch, run, likes, accepted)
  local now = milliseconds()
  if likes > 0 and (now < 1000 or now >= 2147483647000) then
    error({err = 'ERR MySQL cannot store the time of this server'})
  end
  local seq = string.match(call('HGET', shard, 'last'), '%d+$')
  local position = epoch .. string.format('-%d', seq + 1)
  call('XADD', outbox, position, 'run', run, 'before', accepted)
  call('HSET', shard, 'accepted', accepted + likes, 'last', position)
  return position
end

-- set_of returns the key of the set that holds a user, if the numbers of the target's sets are below sets.
local function set_of(likes, load, sets, user)
  local wide = 1
  while wide < sets do wide = wide * 4 end
  local at = math.floor(user % 2147483647 * 1296131 / 65536) % wide
  if at % (wide / 4) >= sets - 3 * wide / 4 then at = at % (wide / 4) end
  return likes .. ':' .. load .. ':' .. at
end

-- attempt calls fn for one of many targets. What is wrong with the target is its result; errors of the server are raised,
-- because clients cannot read them in a list.
local function attempt(fn, ...)
  local ok, reply = pcall(fn, ...)
  if ok then return reply end
  local text = type(reply) == 'table' and reply.err or reply
  if not string.find(text, 'WRONGTYPE', 1, true) then error(reply) end
  return {err = text}
end
