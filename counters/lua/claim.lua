-- The gate of limited stock: claims, returns and releases that arrived together, and settings, in their order.
--
-- KEYS  for each shard: its hash, its outbox, and the claims hash of each drop
-- ARGV  1 words that an outbox may hold; then for each shard, as in like.lua: the earliest time, the deadline, the epoch,
--       the turn and the number of drops; for each drop: its short name ("d42"), the number of its words, and the words:
--       "USER ID"   the user claims a share of the stock under this claim id
--       "-USER ID"  the user returns the claim
--       "!USER ID"  MySQL has ended the claim: its share is released, at any time
--       "=VERSION STOCK BEGINS ENDS"  settings, in ms since 1970; BEGINS and ENDS may be 0, which means none
-- reply a list with one element for each shard (see like.lua): an error, or
--       {0, clock, and for each word its status, a claim id or '', and the remaining stock}
--       {1, clock} the shard is closed
--       {6, clock, epoch, turn, site} the call is late, or of another epoch or turn: no word was looked at. The caller
--       accepts the epoch if site, the id of the installation, is its own
--       {14, clock} MySQL cannot store this time: it is before 1970 or after 2038-01-19
--       clock is this server's in ms
--       0 nothing to change: the user holds the claim of this id, or none if it is ''; or the settings were sent before
--       7 it changed; the id is that of the word
--       2 the drop is cold, 3 it was deleted (see close.lua)
--       4 the outbox is full
--       5 the keys of the drop contradict each other: one was lost or tampered with, and none can be trusted
--       9 claims of the user are refused at the moment: see refuse.lua
--      10 Redis cannot store it: it is out of memory, or the keys of the shard are on their way to another node
--      11 the stock is sold out, 12 the drop has not begun, 13 it has ended
--
-- The hash of a drop names the hash of its users: user → claim id, and a field 0, which is not a user. So a hash that
-- is lost is not taken for an empty one, and its size is always the count plus one.
--
-- One HMGET reads the claims of all users of a drop, so a crowd that finds it sold out costs Redis three commands. A
-- repeat finds the claim of its user before the window and the stock are looked at. Words need no tickets, because a
-- return names its claim: a call that the network delayed cannot undo a later one.
--
-- A word that takes effect leaves "DROP USER CLAIMED ENDED" under the key of its claim id for a day, with times in ms
-- and 0 for what is not known. It answers for a claim whose row is not in MySQL yet. The time of a release is negative:
-- MySQL knew the end before. A day is longer than any jump of a clock whose time zone was wrong. If Redis cannot store
-- it, the claim is valid all the same. A release whose claim is not here was carried out before, or the claim was never
-- loaded. Its event is sent once in the lifetime of that key, so that the writer learns that the share is free.
--
-- What is refused leaves no trace. Redis refuses a write for want of memory only before the first write of a script; so
-- after one refusal, all claims are refused, and returns go on. After the XADD nothing may fail. A replay finds
-- everything as asked. Claim ids have 63 bits and stay strings: a number of Lua has only 53.
-- serve serves the words of a shard whose keys begin at KEYS[first], and its drops at ARGV[arg]. It returns the shard's
-- part of the reply.
local function serve(first, arg)
  local shard, part = admit(first, arg)
  if not shard then return part end
  local room, refusing = shard.room, shard.refusing
  local replies, n = {0, now}, 2
  local run, r = {}, 0 -- the words of the event
  local undo, u = {}, 0 -- commands that take back what was written
  local changed = {} -- of each drop: its key and count
  local marks, m = {}, 0 -- of claims: drop, user, id, and the sign of the word, or '+'
  local ended = {} -- by id: claims that this call has returned or released
  local claim_key = string.gsub(KEYS[first], 'shard$', 'claim:')

  -- accept adds a word to the event, with the command that takes back its write.
  local function accept(word, ...)
    r, room = r + 1, room - 1
    run[r] = word
    if select('#', ...) > 0 then
      u = u + 1
      undo[u] = {...}
    end
  end

  for k = first + 2, first + 1 + ARGV[arg - 1] do
    local name, last = ARGV[arg], arg + 1 + ARGV[arg + 1]
    local key, begin = KEYS[k], r
    local drop = pcall('HMGET', key, 'count', 'load', 'stock', 'begins', 'ends', 'version', 'sent', 'closed')
    local count, stock, version = tonumber(drop[1] or nil), tonumber(drop[3] or nil), tonumber(drop[6] or nil)
    local begins, ends, closed = tonumber(drop[4] or nil), tonumber(drop[5] or nil), drop[8]
    local claims, held, users, ids
    local useless -- the status of all its words
    if drop.err then
      useless = refused(drop)
    elseif not (drop[1] or drop[2] or drop[3] or drop[6]) then
      useless = 2
    elseif not (count and drop[2] and stock and version and begins and ends and drop[7]) then
      useless = 5
    else
      claims = key .. ':' .. drop[2] .. ':0'
      local size = pcall('HLEN', claims)
      if type(size) == 'table' then useless = refused(size) elseif size ~= count + 1 then useless = 5 end
    end
    if not useless then
      users, ids = {'0'}, {}
      for i = arg + 2, last do
        local user, id = match(ARGV[i], '^[-!]?(%d+) (%d+)$')
        users[i - arg], ids[i - arg] = user or '0', id
      end
      local now_held = pcall('HMGET', claims, unpack(users))
      if now_held.err then
        useless = refused(now_held)
      elseif not now_held[1] then
        useless = 5
      else
        held = {}
        for i = 2, #users do held[users[i]] = now_held[i] end
      end
    end
    for i = arg + 2, last do
      local word, status, answer = ARGV[i], useless or 0, ''
      local sign = sub(word, 1, 1)
      if useless then
        -- no word of this drop is looked at
      elseif sign == '=' then
        local v, s, b, e = match(word, '^=(%d+) (%d+) (%d+) (%d+)$')
        local newer = tonumber(v) > version
        if not newer and (tonumber(v) < version or drop[7] == v) then
          status = 0
        elseif room <= 0 then
          status = 4
        elseif full_memory then
          status = 10
        else
          local set
          if newer then
            set = pcall('HSET', key, 'stock', s, 'begins', b, 'ends', e, 'version', v, 'sent', v)
          else
            set = pcall('HSET', key, 'sent', v)
          end
          if type(set) == 'table' then
            status = refused(set)
          else
            status = 7
            accept('=' .. v, 'HSET', key, 'stock', drop[3], 'begins', drop[4], 'ends', drop[5],
              'version', drop[6], 'sent', drop[7])
            drop[7] = v
            if newer then
              drop[3], drop[4], drop[5], drop[6] = s, b, e, v
              stock, begins, ends, version = tonumber(s), tonumber(b), tonumber(e), tonumber(v)
            end
          end
        end
      else
        local user, id = users[i - arg], ids[i - arg]
        local mine = held[user]
        if closed and sign ~= '!' then
          status = 3
        elseif sign == '-' or sign == '!' then
          if mine ~= id then
            answer = mine or ''
            if sign == '!' then
              local mark = pcall('GET', claim_key .. id)
              if type(mark) == 'table' then
                status = refused(mark)
              elseif ended[id] or mark and match(mark, '^%d+ %d+ %d+ %-?[1-9]%d*$') then
                status = 0
              elseif room <= 0 then
                status = 4
              else
                status, m, ended[id] = 7, m + 1, true
                accept('-' .. user .. ':' .. id)
                marks[m] = {sub(name, 2), user, id, sign}
              end
            end
          elseif sign == '-' and ends > 0 and now >= ends then
            status, answer = 13, mine
          elseif room <= 0 then
            status, answer = 4, mine
          else
            local removed = pcall('HDEL', claims, user)
            if removed == 1 then
              status, answer, count, held[user], m, ended[id] = 7, id, count - 1, nil, m + 1, true
              accept('-' .. user .. ':' .. id, 'HSET', claims, user, id)
              marks[m] = {sub(name, 2), user, id, sign}
            else
              status = type(removed) == 'table' and refused(removed) or 5
            end
          end
        elseif mine then
          answer = mine
        elseif begins > now then
          status = 12
        elseif ends > 0 and now >= ends then
          status = 13
        else
          if refusing then
            local over = pcall('ZSCORE', refusing, user)
            if type(over) == 'table' then
              status = refused(over)
            elseif over and refuses(over) then
              status = 9
            end
          end
          if status == 0 then
            if count >= stock then
              status = 11
            elseif room <= 0 then
              status = 4
            elseif full_memory then
              status = 10
            else
              local added = pcall('HSET', claims, user, id)
              if added == 1 then
                status, answer, count, held[user], m = 7, id, count + 1, id, m + 1
                accept('+' .. user .. ':' .. id, 'HDEL', claims, user)
                marks[m] = {sub(name, 2), user, id, '+'}
              else
                status = type(added) == 'table' and refused(added) or 5
              end
            end
          end
        end
      end
      replies[n + 1], replies[n + 2], replies[n + 3] = status, answer, useless and 0 or math.max(0, stock - count)
      n = n + 3
    end
    if r > begin then
      run[begin + 1] = name .. ' ' .. run[begin + 1]
      local c = #changed
      changed[c + 1], changed[c + 2] = key, count
    end
    arg = last + 1
  end
  if r == 0 then return replies end

  local position, failed = append(first, shard, 'claims', run)
  if not position then
    for i = u, 1, -1 do call(unpack(undo[i])) end
    return failed
  end
  for i = 1, #changed, 2 do
    call('HSET', changed[i], 'count', string.format('%d', changed[i + 1]), 'last', position, 'at', at)
  end
  for i = 1, m do
    local drop, user, id, sign = unpack(marks[i])
    local since, ended = at, '0'
    if sign ~= '+' then
      local mark = pcall('GET', claim_key .. id)
      since, ended = type(mark) == 'string' and match(mark, '^%d+ %d+ (%d+)') or '0', sign == '!' and '-' .. at or at
    end
    pcall('SET', claim_key .. id, drop .. ' ' .. user .. ' ' .. since .. ' ' .. ended, 'PX', 86400000)
  end
  return replies
end

return each_shard(serve)
