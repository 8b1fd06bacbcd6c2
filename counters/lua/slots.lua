-- Makes slots of global ids that were reserved in MySQL available to slot.lua.
--
-- KEYS  1 slots, as in slot.lua
-- ARGV  1 the first slot, 2 the end of the slots, 3 the deadline in ms
-- reply 1 they are available, 0 they are not used: they are late, or others are available
--
-- The client sends this script at most once for a reservation. So a copy that the network holds back cannot make slots
-- available again after this server has lost its memory.
local slots = call('HMGET', KEYS[1], 'last', 'end', 'server')
local now, first = milliseconds(), tonumber(ARGV[1])
if now > tonumber(ARGV[3]) then return 0 end
local last = first - 1
if slots[3] == server() then
  local stop = tonumber(slots[2])
  if first < stop then return 0 end
  last = tonumber(slots[1])
  if first > stop then -- the slots from stop to first belong to another reservation
    if math.max(now - 1767225600000, last + 1) < stop then return 0 end
    last = first - 1
  end
end
call('HSET', KEYS[1], 'last', string.format('%.0f', last), 'end', ARGV[2], 'server', server())
return 1
