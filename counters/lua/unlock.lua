-- Releases a lock.
--
-- KEYS  1 the lock, then keys that are removed with it
-- ARGV  1 the lock's token
-- reply 1 released, 0 the lock has another holder, and nothing is removed
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
call('DEL', KEYS[1])
for i = 2, #KEYS do call('UNLINK', KEYS[i]) end
return 1
