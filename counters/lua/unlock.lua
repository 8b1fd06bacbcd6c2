-- Releases the lock of a load that is given up.
--
-- KEYS  1 warming lock, 2 likes hash of the target
-- ARGV  1 the lock's token, 2 1 if the target does not exist: tickets for it are removed, too
-- reply 1 released, 0 the lock has another holder
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
call('DEL', KEYS[1])
if ARGV[2] == '1' then call('UNLINK', KEYS[2] .. ':waiting') end
return 1
