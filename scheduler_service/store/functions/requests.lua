-- requests.lua: what the doors ask: submit, cancel, watch, read. Keys: see common.lua.

-- Sets the watch of a live request. An exempt one (submitted with nobody to read) is rung for, but never lapses.
-- While several streams read a request, whoever refreshes its watch takes it over, so that one that leaves starts no
-- grace while another is there.
local function set_watch(call, id, replica, nonce, grace_ms, lease_ms)
  local key = call.p .. "request:" .. id
  local present = redis.call("HMGET", key, "exempt", "watch_nonce")
  local exempt = present[1] == "1"
  if present[2] ~= nonce then redis.call("HINCRBY", key, "readers", 1) end
  redis.call("HSET", key, "watch_nonce", nonce, "watch_grace", grace_ms)
  redis.call("HSET", call.p .. "watchers", id, replica)
  redis.call("HDEL", key, "unread_from")
  if exempt or tonumber(grace_ms) < 0 then
    redis.call("ZREM", call.p .. "watches", id)
  else
    redis.call("ZADD", call.p .. "watches", int(call.now + lease_ms + grace_ms), id)
  end
  call.wrote = true
end

-- ARGV  retention_s, marker, max requests, max tokens, lease_ms, id, payload hash, payload, priority, tenant, prompt
--       tokens, max_tokens, timeout_ms, then of the watch: replica, nonce, grace_ms ("" in all three: exempt), then
--       queue_timeout_ms, how many requests of this priority may wait (0: any number), and the hashes of the prompt's
--       beginnings (u32 little-endian each)
-- returns  {"created", payload} | {"present", payload} | {"conflict"} | {"full", waiting, waiting tokens}
local function submit(keys, args)
  local call = open_call(keys, args)
  local id, has_watch = args[6], args[15] ~= ""
  local key = call.p .. "request:" .. id
  local present = redis.call("HMGET", key, "payload_hash", "payload", "status")
  if present[1] then
    if present[1] ~= args[7] then return {"conflict"} end
    if has_watch and (present[3] == "waiting" or present[3] == "running") then
      set_watch(call, id, args[14], args[15], args[16], args[5])
      seal(call)
    end
    return {"present", present[2]}
  end
  local num_waiting = redis.call("ZCARD", call.p .. "queue")
  local num_waiting_tokens = tonumber(redis.call("HGET", call.p .. "meta", "num_waiting_tokens") or 0)
  if num_waiting >= tonumber(args[3]) or num_waiting_tokens + tonumber(args[11]) > tonumber(args[4]) then
    return {"full", num_waiting, num_waiting_tokens}
  end
  local level, max_of_level = tonumber(args[9]) * PRIORITY_STEP, tonumber(args[18])
  if max_of_level > 0 then
    local num = redis.call("ZCOUNT", call.p .. "queue", int(level), "(" .. int(level + PRIORITY_STEP))
    if num >= max_of_level then return {"full", num, num_waiting_tokens} end
  end
  ensure_marker(call, args[2])
  local arrivals = redis.call("HINCRBY", call.p .. "meta", "arrivals", 1)
  local rank = int(level + arrivals)
  local timeout_ms = tonumber(args[13])
  local deadline = 0
  if timeout_ms > 0 then
    deadline = call.now + timeout_ms
    redis.call("ZADD", call.p .. "deadlines", int(deadline), id)
  end
  redis.call("HSET", key, "status", "waiting", "payload_hash", args[7], "payload", args[8], "priority", args[9],
    "tenant", args[10], "num_prompt_tokens", args[11], "max_tokens", args[12], "rank", rank, "arrival", int(call.now),
    "deadline", int(deadline), "attempts", "0", "counter", "0", "worker", "", "exempt", has_watch and "0" or "1",
    "queue_timeout", args[17], "prefix_hashes", args[19])
  if has_watch then set_watch(call, id, args[14], args[15], args[16], args[5]) end
  redis.call("HINCRBY", call.p .. "tenants", args[10], 1)
  enter_queue(call, id, rank, {
    num_prompt_tokens = tonumber(args[11]), max_tokens = tonumber(args[12]), arrival = call.now, deadline = deadline,
    attempts = 0, priority = tonumber(args[9]), tenant = args[10], queue_timeout = tonumber(args[17]),
    prefix_hashes = args[19],
  }, 0)
  seal(call)
  return {"created", args[8]}
end

-- ARGV  retention_s, ids
local function cancel(keys, args)
  local call = open_call(keys, args)
  for i = 2, #args do
    end_or_flag(call, args[i], "cancelled")
  end
  seal(call)
  return 1
end

-- ARGV  retention_s, lease_ms, id, replica, nonce, grace_ms
-- returns  1; 0 if there is no such request
local function watch(keys, args)
  local call = open_call(keys, args)
  local record = redis.call("HMGET", call.p .. "request:" .. args[3], "status", "held")
  local status = record[1]
  if not status then return 0 end
  if status == "waiting" or status == "running" then
    set_watch(call, args[3], args[4], args[5], args[6], args[2])
    seal(call)
  elseif record[2] == "1" then
    redis.call("HSET", call.p .. "watchers", args[3], args[4]) -- rung when its batch ends
    call.wrote = true
    seal(call)
  end
  return 1
end

-- Lapse time of the id's watch if `nonce` is the present one and it can lapse at all; else nil.
local function lapse_time(call, id, nonce, lease_ms)
  local r = redis.call("HMGET", call.p .. "request:" .. id, "watch_nonce", "watch_grace", "status", "exempt")
  if not nonce or nonce == "" or r[1] ~= nonce then return nil, false end
  local is_live = r[3] == "waiting" or r[3] == "running"
  if not is_live or r[4] == "1" or tonumber(r[2]) < 0 then return nil, is_live end
  return int(call.now + lease_ms + r[2]), true
end

local function adopt_shared(call, id, nonce, replica)
  local key = call.p .. "request:" .. id
  local r = redis.call("HMGET", key, "readers", "watch_nonce", "status")
  local readers = tonumber(r[1] or 0)
  if readers < 1 or (readers == 1 and r[2] ~= "") or r[2] == nonce or (r[3] ~= "waiting" and r[3] ~= "running") then return end
  redis.call("HSET", key, "watch_nonce", nonce)
  redis.call("HDEL", key, "unread_from")
  redis.call("HSET", call.p .. "watchers", id, replica)
  call.wrote = true
end

-- ARGV  retention_s, lease_ms, replica, then pairs id, nonce
local function refresh_watches(keys, args)
  local call = open_call(keys, args)
  for i = 4, #args, 2 do
    adopt_shared(call, args[i], args[i + 1], args[3])
    local time = lapse_time(call, args[i], args[i + 1], args[2])
    -- XX: one that has lapsed already (flagged for its driver) stays so
    if time then
      redis.call("ZADD", call.p .. "watches", "XX", time, args[i])
      call.wrote = true
    end
  end
  seal(call)
  return 1
end

-- ARGV  retention_s, lease_ms, id, nonce
local function unwatch(keys, args)
  local call = open_call(keys, args)
  local id = args[3]
  local key = call.p .. "request:" .. id
  local readers = tonumber(redis.call("HGET", key, "readers") or 0)
  if readers > 0 then redis.call("HINCRBY", key, "readers", -1) end
  -- another reader has the lease's time to say that it is there
  local lease_ms = readers > 1 and args[2] or 0
  local time, is_present = lapse_time(call, id, args[4], lease_ms)
  if is_present then
    redis.call("HSET", call.p .. "request:" .. id, "watch_nonce", "")
    mark_unread(call, id)
    redis.call("HDEL", call.p .. "watchers", id)
    if time then redis.call("ZADD", call.p .. "watches", "XX", time, id) end
    call.wrote = true
  end
  seal(call)
  return 1
end

-- ARGV  retention_s, then pairs id, start index
-- What a batch that goes on holds back is not there yet: it reads as running, with the log it had when it was claimed.
-- returns  per pair {} for an unknown id, else {status, length, log bytes from start, finish, visible_tokens,
--          visible_chars, stop_match, error, num_cached_tokens}; what is not set is null
local function read_logs(keys, args)
  local slices = {}
  for i = 2, #args, 2 do
    local r = redis.call("HMGET", keys[1] .. "request:" .. args[i], "status", "finish", "visible_tokens",
      "visible_chars", "stop_match", "error", "num_cached_tokens", "held", "held_from")
    local slice = {}
    if r[8] == "1" then
      local start, length = tonumber(args[i + 1]), tonumber(r[9])
      local ids = ""
      if start < length then
        ids = redis.call("GETRANGE", keys[1] .. "tokens:" .. args[i], int(start * 4), int(length * 4 - 1))
      end
      slice = {"running", length, ids, false, false, false, false, false, r[7]}
    elseif r[1] then
      local tokens = keys[1] .. "tokens:" .. args[i]
      local ids = redis.call("GETRANGE", tokens, int(tonumber(args[i + 1]) * 4), -1)
      slice = {r[1], redis.call("STRLEN", tokens) / 4, ids, r[2], r[3], r[4], r[5], r[6], r[7]}
    end
    slices[#slices + 1] = slice
  end
  return slices
end

register("submit", submit, {}) -- the one call that is refused when memory is short: what runs goes on
register("cancel", cancel, {"allow-oom"})
register("watch", watch, {"allow-oom"})
register("refresh_watches", refresh_watches, {"allow-oom"})
register("unwatch", unwatch, {"allow-oom"})
register("read_logs", read_logs, {"no-writes"})
