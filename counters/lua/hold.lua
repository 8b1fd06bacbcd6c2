-- Acquires or renews a lock.
--
-- KEYS  1 the lock
-- ARGV  1 token, 2 how long to hold it, in ms, 3 1 to acquire it if it is free, 0 only to renew it
-- reply 1 held, 0 the lock is free, or has another holder
if call('GET', KEYS[1]) ~= ARGV[1] and (ARGV[3] == '0' or holder(KEYS[1], ARGV[2])) then return 0 end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
