-- membership.lua: who is there: the pool's model, workers that leave or died, replicas that beat. Keys: see common.lua.

local TOMBSTONE_S = 86400 -- a dead incarnation is refused that long; nothing of it is left after that
local SILENT_REPLICA_MS = 60000 -- a replica that has not beaten for so long is forgotten

-- ARGV  retention_s, marker, fingerprint
-- returns  the fingerprint the pool is tied to
local function attach_pool(keys, args)
  local call = open_call(keys, args)
  ensure_marker(call, args[2])
  if redis.call("HSETNX", call.p .. "meta", "fingerprint", args[3]) == 1 then call.wrote = true end
  seal(call)
  return redis.call("HGET", call.p .. "meta", "fingerprint")
end

-- Tombstones a worker and returns its requests to the queue. Bounded by the requests that run on it.
local function bury(call, incarnation, more_attempts)
  local ids = redis.call("HKEYS", call.p .. "running:" .. incarnation)
  local requeued = {}
  for _, id in ipairs(ids) do
    if return_to_queue(call, id, incarnation, more_attempts) then requeued[#requeued + 1] = id end
  end
  local key = call.p .. "worker:" .. incarnation
  redis.call("HSET", key, "tombstone", "1")
  redis.call("EXPIRE", key, TOMBSTONE_S)
  redis.call("SREM", call.p .. "workers", incarnation)
  call.wrote = true
  seal(call)
  return requeued
end

-- ARGV  retention_s, incarnation, epoch, beat
-- returns  {"gone"} if the worker is tombstoned already | {"lives"} | {"reclaimed", {ids requeued}}
local function reclaim(keys, args)
  local call = open_call(keys, args)
  local worker = redis.call("HMGET", call.p .. "worker:" .. args[2], "epoch", "beat", "tombstone")
  if worker[3] then return {"gone"} end
  if worker[1] ~= args[3] or worker[2] ~= args[4] then return {"lives"} end
  return {"reclaimed", bury(call, args[2], 1)}
end

-- ARGV  retention_s, incarnation, epoch
-- returns  {"stale"} | {"gone"} if that has been done already | {"detached", {ids requeued}}
local function detach_worker(keys, args)
  local call = open_call(keys, args)
  local worker = redis.call("HMGET", call.p .. "worker:" .. args[2], "epoch", "tombstone")
  if worker[1] ~= args[3] then return {"stale"} end
  if worker[2] then return {"gone"} end
  return {"detached", bury(call, args[2], 0)}
end

-- ARGV  retention_s, incarnation
-- returns  {epoch, beat}; {} if it is not attached
local function read_worker_beat(keys, args)
  local worker = redis.call("HMGET", keys[1] .. "worker:" .. args[2], "epoch", "beat", "tombstone")
  if not worker[1] or worker[3] then return {} end
  return {worker[1], worker[2]}
end

-- The largest capacity of an attached worker; nil without any.
local function largest_capacity(call)
  local largest
  for _, incarnation in ipairs(redis.call("SMEMBERS", call.p .. "workers")) do
    local capacity = tonumber(redis.call("HGET", call.p .. "worker:" .. incarnation, "capacity"))
    if capacity and capacity > (largest or 0) then largest = capacity end
  end
  return largest
end

-- Ends what no attached worker has been able to run for so long. Without any worker nothing is unfit: it waits.
local function end_unfit(call, timeout_ms)
  local meta = call.p .. "meta"
  local capacity = largest_capacity(call)
  local known = redis.call("HMGET", meta, "capacity", "capacity_since")
  if not capacity then
    if known[1] then redis.call("HDEL", meta, "capacity", "capacity_since") end
    return
  end
  if tonumber(known[1]) ~= capacity then
    redis.call("HSET", meta, "capacity", int(capacity), "capacity_since", int(call.now))
    return
  end
  local latest = call.now - tonumber(timeout_ms)
  if tonumber(known[2]) > latest then return end
  local ids = redis.call("ZRANGEBYSCORE", call.p .. "sizes", "(" .. int(capacity), "+inf", "LIMIT", 0, LAPSE_LIMIT)
  for _, id in ipairs(ids) do
    local record = redis.call("HMGET", call.p .. "request:" .. id, "arrival", "num_prompt_tokens", "max_tokens")
    if tonumber(record[1]) <= latest then
      end_request(call, id, "failed", "unfit", {"error", string.format(
        "no worker can run %s prompt tokens and %s new ones: the largest takes %s together", record[2], record[3],
        int(capacity))})
    end
  end
end

-- An outage of the store, or of all replicas, shows in the beats: then watches get a lease more.
local function note_beat(call, lease_ms, outage_ms)
  local meta = call.p .. "meta"
  local beats_until = redis.call("HGET", meta, "beats_until")
  if beats_until and call.now > tonumber(beats_until) then
    redis.call("HSET", meta, "amnesty_until", int(call.now + lease_ms))
  end
  redis.call("HSET", meta, "beats_until", int(call.now + outage_ms))
end

-- ARGV  retention_s, marker, replica, lease_ms, outage_ms, unfit_timeout_ms
-- returns  {waiting, running, waiting tokens, replicas: flat name, beat, strategy, unread tokens, marker,
--          write counter}
local function beat(keys, args)
  local call = open_call(keys, args)
  ensure_marker(call, args[2])
  note_beat(call, args[4], args[5])
  lapse(call)
  end_unfit(call, args[6])
  local key = call.p .. "replicas"
  local count = tonumber(string.match(redis.call("HGET", key, args[3]) or "0 0", "^(%d+)")) + 1
  redis.call("HSET", key, args[3], int(count) .. " " .. int(call.now))
  call.wrote = true
  seal(call)
  local replicas, beats = redis.call("HGETALL", key), {}
  for i = 1, #replicas, 2 do
    local number, time = string.match(replicas[i + 1], "^(%d+) (%d+)$")
    if call.now - tonumber(time) > SILENT_REPLICA_MS then
      redis.call("HDEL", key, replicas[i])
    else
      beats[#beats + 1] = replicas[i]
      beats[#beats + 1] = number
    end
  end
  local meta = redis.call("HMGET", call.p .. "meta", "num_running", "num_waiting_tokens", "strategy",
    "num_unread_tokens", "marker", "write_counter")
  return {redis.call("ZCARD", call.p .. "queue"), tonumber(meta[1] or 0), tonumber(meta[2] or 0), beats, meta[3] or "",
    tonumber(meta[4] or 0), meta[5], tonumber(meta[6] or 0)}
end

-- ARGV  retention_s, replica
local function leave(keys, args)
  local call = open_call(keys, args)
  redis.call("HDEL", call.p .. "replicas", args[2])
  call.wrote = true
  seal(call)
  return 1
end

-- ARGV  retention_s, marker, strategy ("": none, each replica's own setting holds)
local function set_strategy(keys, args)
  local call = open_call(keys, args)
  ensure_marker(call, args[2])
  redis.call("HSET", call.p .. "meta", "strategy", args[3])
  call.wrote = true
  call.ring_all = true
  seal(call)
  return 1
end

register("set_strategy", set_strategy, {"allow-oom"})
-- ARGV  retention_s, most
-- returns  per quarantined request, the newest first: id, ms ago, tenant, prompt tokens, output tokens, error
local function list_quarantined(keys, args)
  local call = open_call(keys, args)
  local key, found = call.p .. "quarantined", {}
  redis.call("ZREMRANGEBYSCORE", key, "-inf", int(call.now - QUARANTINE_S * 1000))
  local ids = redis.call("ZREVRANGE", key, 0, tonumber(args[2]) - 1, "WITHSCORES")
  for i = 1, #ids, 2 do
    local r = redis.call("HMGET", call.p .. "request:" .. ids[i], "tenant", "num_prompt_tokens", "error")
    if r[1] then
      found[#found + 1] = {ids[i], call.now - tonumber(ids[i + 1]), r[1], tonumber(r[2]), log_length(call, ids[i]), r[3]}
    end
  end
  return found
end

-- Forgets quarantined requests: their ids may be submitted anew.
-- ARGV  retention_s, ids
-- returns  how many there were
local function release_quarantined(keys, args)
  local call, num = open_call(keys, args), 0
  for i = 2, #args do
    if redis.call("ZREM", call.p .. "quarantined", args[i]) == 1 then
      redis.call("DEL", call.p .. "request:" .. args[i], call.p .. "tokens:" .. args[i])
      call.wrote = true
      num = num + 1
    end
  end
  seal(call)
  return num
end

-- A write without a meaning, for a replica to acknowledge; and with it all that was written before.
-- ARGV  retention_s
local function touch(keys, args)
  local call = open_call(keys, args)
  call.wrote = true
  return seal(call)
end

register("touch", touch, {"allow-oom"})
register("list_quarantined", list_quarantined, {"allow-oom"})
register("release_quarantined", release_quarantined, {"allow-oom"})
register("attach_pool", attach_pool, {"allow-oom"})
register("reclaim", reclaim, {"allow-oom"})
register("detach_worker", detach_worker, {"allow-oom"})
register("read_worker_beat", read_worker_beat, {"no-writes"})
register("beat", beat, {"allow-oom"})
register("leave", leave, {"allow-oom"})
