-- Issues a slot of global ids: a millisecond since 2026 that was not issued before.
--
-- KEYS  1 slots: hash of last (the last slot issued), end (slots below it are reserved in MySQL), server, asked
-- ARGV  1 the last slot that the caller knows; 2 how many reserved slots should be left
-- reply {1, slot, 1 if the caller is to reserve more, end}
--       {0, slot, now} the slot is not reserved, or this server may have lost the last ones that it issued
--
-- A replay issues another slot. A clock that is set back does no harm: slots only grow.
local slots = call('HMGET', KEYS[1], 'last', 'end', 'server', 'asked')
local now = milliseconds()
local slot = math.max(now - 1767225600000, (tonumber(slots[1]) or 0) + 1, tonumber(ARGV[1]) + 1)
local left = (tonumber(slots[2]) or 0) - slot
if left <= 0 or slots[3] ~= server() then return {0, slot, now} end
call('HSET', KEYS[1], 'last', string.format('%.0f', slot))
local ask = 0
if left <= tonumber(ARGV[2]) and math.abs(now - (tonumber(slots[4]) or 0)) >= 1000 then
  call('HSET', KEYS[1], 'asked', now)
  ask = 1
end
return {1, slot, ask, tonumber(slots[2])}
