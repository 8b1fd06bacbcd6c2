-- Returns the value of a key.
--
-- KEYS  1 the key
-- reply its value, or nil
return call('GET', KEYS[1])
