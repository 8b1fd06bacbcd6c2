-- The gate: sets or removes likes that arrived together, in their order.
--
-- KEYS  for each shard: its hash, its outbox, and the likes hash of each target
-- ARGV  1 likes that an outbox may hold; then for each shard: the earliest time that this server's clock can show, and
--       the deadline of the callers, in ms; the epoch and the turn in which the caller read that clock; the number of
--       targets, and for each target: its short name ("p42", "c7"), the number of its likes, and the likes.
--       A like is a user id, with "-" in front to unlike, and " TICKET" behind if it was here before
-- reply a list with one element for each shard: an error, if something is wrong with the keys of the shard, or
--       {0, clock, and for each like its status and a number}   {1, clock} the shard is closed
--       {6, clock, epoch, turn, site} the call is late, or of another epoch or turn: no like was looked at. The caller
--       accepts the epoch if site, the id of the installation, is its own
--       {14, clock} MySQL cannot store this time: it is before 1970 or after 2038-01-19
--       clock is this server's in ms
--       0 it is as asked already, 7 it changed: the number of likes of the target after it
--       2 the target is cold, 3 it was deleted (see close.lua): the ticket with which to come again
--       4 the outbox is full
--       5 the keys of the target contradict each other: one was lost or tampered with, and none can be trusted
--       8 the user has called again since: this call must no longer take effect
--       9 likes of the user are refused at the moment: see refuse.lua
--      10 Redis cannot store it: it is out of memory, or the keys of the shard are on their way to another node
--      15 the ticket of the like is lost, so nobody knows whether the user has called again
--
-- Users are spread over sets so small that Redis keeps them as sorted arrays of integers: see sets.go. Each set also
-- holds 0, which is not a user, so a set that is lost is not taken for an empty one.
--
-- A call that the network delayed may arrive after its callers gave up, and after they made the opposite call. That
-- must not be undone, so a late call is rejected. The deadline is one of this server's clock, which may be set back, or
-- stand still with its machine. Then a new turn begins, and calls of earlier turns are late, too. The clock has been
-- set back if it is before a time that it showed (seen, to the second), or before one that a caller knows to be over.
-- Turns are numbered in the shard's hash, and cost nothing else. A like that has to wait (for its target to be loaded, or for MySQL to
-- be asked about a deletion) leaves a ticket; the next call of the same user takes it away, and what comes with one
-- that is gone is rejected.
--
-- What is refused leaves no trace but a ticket. Redis refuses a write for want of memory only before the first write of
-- a script; so after one refusal, all that takes memory is refused, and unlikes go on. While a slot moves to another
-- node, Redis refuses each key that is there already. After the XADD nothing may fail: an error would hide likes that
-- are accepted. A replay finds every like as asked.
--
-- Shards have nothing in common but the call, which spares Redis the start of a script for each. What is wrong with one
-- is its part of the reply, and leaves the others alone. In a cluster, a call is of one shard, because the keys of a
-- script belong to one slot.
--
-- Redis converts strings faster than numbers, and the Lua of Redis needs most time for numbers that become strings: so
-- words stay as they came.
-- missed returns the status of a like whose ticket is not the one held for its user. A user of whom several calls
-- waited, or one overtook another that waited, has a field with "!" behind the id. Without it, a ticket that is gone was
-- lost: it expired because the clock was set ahead, Redis lost it, or the target was found to be deleted.
local function missed(key, user, held)
  if type(held) == 'string' or pcall('HEXISTS', key, user .. '!') == 1 then return 8 end
  return 15
end

-- wait notes a ticket of a user who has to come again, or confirms the one that came with the call. The ticket of an
-- unlike is negative. Calls that want the same, without another in between, share a ticket: the first of them has the
-- effect. wait returns the ticket, or nil and the status of the like.
local function wait(shard_key, target, op, space)
  local key = target .. ':waiting'
  local unlike = sub(op, 1, 1) == '-'
  local user = sub(op, unlike and 2 or 1, space and space - 1)
  local ticket = pcall('HGET', key, user)
  if space then
    if ticket ~= sub(op, space + 1) then return nil, missed(key, user, ticket) end
  elseif full_memory then
    return nil, 10
  else
    if type(ticket) == 'string' then pcall('HSET', key, user .. '!', 1) end
    if type(ticket) ~= 'string' or (sub(ticket, 1, 1) == '-') ~= unlike then
      ticket = pcall('HINCRBY', shard_key, 'tickets', 1)
      if type(ticket) == 'table' then
        refused(ticket)
        return nil, 10
      end
      if unlike then ticket = -ticket end
      if type(pcall('HSET', key, user, ticket)) == 'table' then return nil, 10 end
    end
  end
  pcall('PEXPIRE', key, 60000)
  return tonumber(ticket)
end

local digits = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}

-- fill makes a new set of these members. It reports whether Redis could store it.
local function fill(set, members)
  if type(pcall('DEL', set)) == 'table' then return false end
  for i = 1, #members, 1000 do
    if type(pcall('SADD', set, unpack(members, i, math.min(i + 999, #members)))) == 'table' then
      pcall('DEL', set)
      return false
    end
  end
  return true
end

-- store stores the counts of targets, and splits their sets. By linear hashing, sets are split in four, one after the
-- other, when those that are left have 300 to 420 users. What a call leaves, because Redis could not store it for a
-- time, the next ones do.
local function store(changed, id)
  for i = 1, #changed, 4 do
    local target, count, sets, load = changed[i], changed[i + 1], changed[i + 2], changed[i + 3]
    call('HSET', target, 'count', tostring(count), 'last', id, 'at', at)
    local wide = 1
    while wide <= sets do wide = wide * 4 end
    local base, split = wide / 4, math.max(0, sets - 3 * wide / 4)
    local prefix, left = target .. ':' .. load .. ':', 4
    while left > 0 and count > 300 * base + 120 * split do
      local users, whole = pcall('SMEMBERS', prefix .. split), false
      if users.err then break end
      local parts, n, moved, m, quarter = {{'0'}, {'0'}, {'0'}}, {1, 1, 1}, {}, 0, 65536 * base
      for j = 1, #users do
        local user = users[j]
        local part = user % 2147483647 * 1296131 % (4 * quarter)
        if part >= quarter then
          part = (part - part % quarter) / quarter
          n[part], m = n[part] + 1, m + 1
          parts[part][n[part]], moved[m] = user, user
        elseif user == '0' then
          whole = true
        end
      end
      -- A set that is lost, or on its way to another node, is not split: its users would be lost without a trace.
      if not whole then break end
      local filled = 0
      while filled < 3 and fill(prefix .. (split + (filled + 1) * base), parts[filled + 1]) do filled = filled + 1 end
      if filled < 3 then
        for part = 1, filled do pcall('DEL', prefix .. (split + part * base)) end
        break
      end
      for j = 1, m, 1000 do call('SREM', prefix .. split, unpack(moved, j, math.min(j + 999, m))) end
      split, left = split + 1, left - 1
      sets = 3 * base + split
      call('HSET', target, 'sets', sets)
      if split == base then base, split = sets, 0 end
    end
  end
end

-- serve sets and removes the likes of a shard whose keys begin at KEYS[key], and its targets at ARGV[arg]. It returns
-- the shard's part of the reply.
local function serve(key, arg)
  local shard, part = admit(key, arg)
  if not shard then return part end
  local room, refusing = shard.room, shard.refusing
  local replies, n = {0, now}, 2
  local run, r = {}, 0 -- the words of the event
  local sets_of = {} -- by word, to take back
  local changed = {} -- of each target: its key, count, sets and load
  for k = key + 2, key + 1 + ARGV[arg - 1] do
    local name, last = ARGV[arg], arg + 1 + ARGV[arg + 1]
    local target = pcall('HMGET', KEYS[k], 'count', 'sets', 'load', 'closed', 'waiting')
    local count, sets = tonumber(target[1] or nil), tonumber(target[2] or nil)
    local useless -- the status of all its likes
    if target.err or (target[1] or target[2] or target[3]) and not (count and sets and target[3]) then
      useless = 5
    elseif sets == 1 and not target[4] then
      local size = pcall('SCARD', KEYS[k] .. ':' .. target[3] .. ':0')
      if type(size) == 'table' then useless = refused(size) elseif size ~= count + 1 then useless = 5 end
    end
    if useless then
      for _ = arg + 2, last do
        replies[n + 1], replies[n + 2] = useless, 0
        n = n + 2
      end
    elseif not count or target[4] then
      for i = arg + 2, last do
        local ticket, status = wait(KEYS[key], KEYS[k], ARGV[i], find(ARGV[i], ' ', 1, true))
        replies[n + 1], replies[n + 2] = status or count and 3 or 2, ticket or 0
        n = n + 2
      end
      if count then pcall('HSET', KEYS[k], 'waiting', 1) end
    else
      local prefix = KEYS[k] .. ':' .. target[3] .. ':'
      local wide = 1
      while wide < sets do wide = wide * 4 end
      local begin, waiting, base, split, wide = r, target[5], wide / 4, sets - 3 * wide / 4, 65536 * wide
      for i = arg + 2, last do
        local word, status = ARGV[i], 0
        local id, ticket = tonumber(word)
        if not id then
          local space = find(word, ' ', 1, true)
          word, ticket = sub(word, 1, space - 1), sub(word, space + 1)
          id = tonumber(word)
        end
        local user, unlike = word, id < 0
        if unlike then id, user = -id, sub(word, 2) end
        local at = id % 2147483647 * 1296131 % wide
        at = (at - at % 65536) / 65536
        if at % base >= split then at = at % base end
        local set
        if at < 10 then
          set = prefix .. digits[at]
        elseif at < 1000 then
          local ones = at % 10
          local tens = (at - ones) / 10
          if tens < 10 then
            set = prefix .. digits[tens] .. digits[ones]
          else
            local ten = tens % 10
            set = prefix .. digits[(tens - ten) / 10] .. digits[ten] .. digits[ones]
          end
        else
          set = prefix .. at
        end
        if waiting then
          local tickets = KEYS[k] .. ':waiting'
          local held = pcall('HGET', tickets, user)
          if type(held) == 'table' then
            status = refused(held)
          elseif ticket and ticket ~= held then
            status = missed(tickets, user, held)
          elseif held then
            if not ticket then pcall('HSET', tickets, user .. '!', 1) end
            pcall('HDEL', tickets, user)
          end
        elseif ticket then
          status = 15
        end
        if refusing and status == 0 and not unlike then
          local ends = pcall('ZSCORE', refusing, user)
          if type(ends) == 'table' then
            status = refused(ends)
          elseif ends and refuses(ends) then
            status = 9
          end
        end
        if status == 0 then
          if room <= 0 then
            local is = pcall('SMISMEMBER', set, '0', user)
            if is.err then
              status = refused(is)
            elseif is[1] == 0 then
              status = 5
            elseif (is[2] == 0) ~= unlike then
              status = 4
            end
          elseif unlike then
            local removed = pcall('SREM', set, user)
            if removed == 1 then
              status, count = 7, count - 1
            elseif removed ~= 0 then
              status = refused(removed)
            elseif call('EXISTS', set) == 0 then
              status = 5
            end
          else
            local added = not full_memory and pcall('SADD', set, '0', user)
            if added == 1 then
              status, count = 7, count + 1
            elseif added == 2 then
              call('SREM', set, '0', user)
              status = 5
            elseif added and added ~= 0 then
              status = refused(added)
            end
            if full_memory then -- only a repeat takes none
              local is = pcall('SMISMEMBER', set, '0', user)
              if is.err then
                status = refused(is)
              else
                status = is[1] == 0 and 5 or is[2] == 1 and 0 or 10
              end
            end
          end
          if status == 7 then
            r, room = r + 1, room - 1
            run[r], sets_of[r] = word, set
          end
        elseif status == 8 or status == 15 then -- it has no effect, and needs none if the later call asked for the same
          local is = pcall('SMISMEMBER', set, '0', user)
          if not is.err and is[1] == 1 and (is[2] == 0) == unlike then status = 0 end
        end
        replies[n + 1], replies[n + 2] = status, count
        n = n + 2
      end
      if r > begin then
        run[begin + 1] = name .. ' ' .. run[begin + 1]
        local c = #changed
        changed[c + 1], changed[c + 2], changed[c + 3], changed[c + 4] = KEYS[k], count, sets, target[3]
      end
      if waiting and pcall('EXISTS', KEYS[k] .. ':waiting') == 0 then call('HDEL', KEYS[k], 'waiting') end
    end
    arg = last + 1
  end
  if r == 0 then return replies end

  local id, failed = append(key, shard, 'likes', run)
  if not id then
    for i = r, 1, -1 do
      local sign, user = match(run[i], '(%-?)(%d+)$')
      call(sign == '-' and 'SADD' or 'SREM', sets_of[i], user)
    end
    return failed -- after a write, no error of want of memory, which clients cannot read in a list
  end
  store(changed, id)
  return replies
end

return each_shard(serve)
