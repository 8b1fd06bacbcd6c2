-- Fails on a replica, as every script does that shard.lua precedes.
--
-- reply 1
--
-- It comes first in a pipeline of commands that read.
return 1
