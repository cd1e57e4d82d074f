-- driving.lua: what the driver of a worker asks, under its fence (incarnation, epoch). Keys: see common.lua.
--
-- ARGV[1..4]  retention_s, claim window, incarnation, epoch
-- returns     {"stale", stored epoch, tombstoned} if the fence is not current, else {"ok", driver reply, ...}

-- Opens a fenced call; nil and the answer if the fence is not current.
local function open_fenced(keys, args)
  local call = open_call(keys, args)
  if not is_current(call, args[3], args[4]) then return nil, stale(call) end
  return call
end

-- ARGV  ..., replica, marker, capacity
-- returns  {"ok", reply, {running records}, {per open batch: name, settings, size}}
local function attach_driver(keys, args)
  local call = open_call(keys, args)
  local key = call.p .. "worker:" .. args[3]
  local worker = redis.call("HMGET", key, "epoch", "replica", "tombstone")
  call.stored_epoch, call.is_tombstoned = worker[1], worker[3]
  if worker[3] then return stale(call) end
  if worker[1] then
    local stored, epoch = tonumber(worker[1]), tonumber(args[4])
    -- the very same grant once more is a retry
    if stored > epoch or (stored == epoch and worker[2] ~= args[5]) then return stale(call) end
  end
  ensure_marker(call, args[6])
  call.capacity = args[7]
  redis.call("HSET", key, "epoch", args[4], "replica", args[5], "capacity", call.capacity)
  redis.call("HINCRBY", key, "beat", 1)
  redis.call("SADD", call.p .. "workers", args[3])
  call.wrote = true
  local running = redis.call("HGETALL", call.p .. "running:" .. args[3])
  local records, batches, seen = {}, {}, {}
  for i = 1, #running, 2 do
    local record = running_record(call, running[i], running[i + 1])
    local batch = record[7]
    records[#records + 1] = record
    if batch ~= "" and not seen[batch] then
      seen[batch] = true
      local r = redis.call("HMGET", call.p .. "batch:" .. batch, "settings", "size")
      if r[1] then batches[#batches + 1] = {batch, r[1], r[2]} end
    end
  end
  return {"ok", driver_reply(call, args[3], args[2]), records, batches}
end

local function poll(keys, args)
  local call, refusal = open_fenced(keys, args)
  if not call then return refusal end
  lapse(call)
  return {"ok", driver_reply(call, args[3], args[2])}
end

-- Those of `ids` that can be claimed, and their number with those claimed here before by a call whose answer was lost.
local function claimable(call, args, running_key)
  local waiting, present, num = {}, {}, 0
  for i = 9, #args, 2 do
    local id = args[i]
    local entry = redis.call("HGET", call.p .. "waiting", id)
    if entry then
      local _, _, _, _, deadline = struct.unpack(ENTRY, entry)
      if deadline == 0 or deadline > call.now then
        waiting[id] = entry
        num = num + 1
      end
    else
      local assignment = redis.call("HGET", running_key, id)
      if assignment then
        present[id] = assignment
        num = num + 1
      end
    end
  end
  return waiting, present, num
end

-- ARGV  ..., at_least, batch ("": each for itself), its settings, whether its answers are held back until it ends
--       ("1", "0"), then pairs id, nonce; no id twice
-- returns  {"ok", reply, {running records}}
local function claim(keys, args)
  local call, refusal = open_fenced(keys, args)
  if not call then return refusal end
  lapse(call)
  local running_key = call.p .. "running:" .. args[3]
  local waiting, present, num = claimable(call, args, running_key)
  local records = {}
  if num < tonumber(args[5]) then return {"ok", driver_reply(call, args[3], args[2]), records} end
  local batch, size = args[6], 0
  for i = 9, #args, 2 do
    local id, assignment = args[i], present[args[i]]
    if waiting[id] then
      if batch ~= "" then
        redis.call("HSET", call.p .. "request:" .. id, "batch", batch, "held", args[8],
          "held_from", int(log_length(call, id)))
        redis.call("SADD", call.p .. "members:" .. batch, id)
        redis.call("SADD", call.p .. "left:" .. batch, id)
        size = size + 1
      end
      local key = call.p .. "request:" .. id
      leave_queue(call, id)
      local counter = redis.call("HINCRBY", key, "counter", 1)
      redis.call("HSET", key, "status", "running", "worker", args[3])
      local attempts = redis.call("HGET", key, "attempts")
      assignment = int(counter) .. ":" .. args[i + 1] .. " " .. attempts
      redis.call("HSET", running_key, id, assignment)
      call.running_delta = call.running_delta + 1
    end
    if assignment then records[#records + 1] = running_record(call, id, assignment) end
  end
  if size > 0 then redis.call("HSET", call.p .. "batch:" .. batch, "settings", args[7], "size", int(size)) end
  return {"ok", driver_reply(call, args[3], args[2]), records}
end

local APPENDED, REPLAYED, GAP, STALE, DATA_LOSS = 0, 1, 2, 3, 4

-- One row against the log. Returns its status, the log's length after it, and whether ids were appended.
local function append_row(call, id, index, ids)
  local key = call.p .. "tokens:" .. id
  local length = redis.call("STRLEN", key)
  local at = index * 4
  if at > length then return GAP, length / 4, false end
  local overlap = math.min(length - at, #ids)
  if overlap > 0 and redis.call("GETRANGE", key, int(at), int(at + overlap - 1)) ~= string.sub(ids, 1, overlap) then
    return DATA_LOSS, length / 4, false
  end
  if overlap < #ids then
    length = redis.call("APPEND", key, string.sub(ids, overlap + 1))
    return APPENDED, length / 4, true
  end
  if at < length then return REPLAYED, length / 4, false end
  return APPENDED, length / 4, false
end

-- A committed token shows that the request does not kill its worker.
local function reset_attempts(call, running_key, id, assignment)
  redis.call("HSET", call.p .. "request:" .. id, "attempts", "0")
  redis.call("HSET", running_key, id, assignment .. " 0")
end

-- ARGV  ..., number of rows, per row: id, assignment, index, log bytes; then per extra: row's number, num_cached_tokens
--       (-1: not known), finish ("": goes on), status, visible_tokens, visible_chars, stop_match, error
-- returns  {"ok", reply, {statuses}, {lengths}}
local function commit(keys, args)
  local call, refusal = open_fenced(keys, args)
  if not call then return refusal end
  redis.call("HINCRBY", call.p .. "worker:" .. args[3], "beat", 1)
  call.wrote = true
  local num_rows, running_key = tonumber(args[5]), call.p .. "running:" .. args[3]
  local extras = {}
  for i = 6 + num_rows * 4, #args, 8 do
    extras[tonumber(args[i])] = i
  end
  local ids = {}
  for row = 1, num_rows do
    ids[row] = args[2 + row * 4]
  end
  local assignments, watchers = {}, {}
  if num_rows > 0 then
    assignments = redis.call("HMGET", running_key, unpack(ids))
    watchers = redis.call("HMGET", call.p .. "watchers", unpack(ids))
  end
  local statuses, lengths, has_ended = {}, {}, {}
  for row = 1, num_rows do
    local id, at = ids[row], 2 + row * 4
    local assignment, attempts = string.match(assignments[row] or "", "^(%S+) (%d+)$")
    if has_ended[id] or assignment ~= args[at + 1] then
      statuses[row], lengths[row] = STALE, log_length(call, id)
    else
      local status, length, has_grown = append_row(call, id, tonumber(args[at + 2]), args[at + 3])
      statuses[row], lengths[row] = status, length
      if has_grown then
        if attempts ~= "0" then reset_attempts(call, running_key, id, assignment) end
        ring(call, watchers[row], id)
      end
      local extra = extras[row]
      if status == DATA_LOSS then
        has_ended[id] = true
        end_request(call, id, "data_loss", "", {"error", "the committed log differs from the worker's rows"})
      elseif extra and status ~= GAP then
        if args[extra + 1] ~= "-1" then
          redis.call("HSET", call.p .. "request:" .. id, "num_cached_tokens", args[extra + 1])
        end
        if args[extra + 2] ~= "" then
          has_ended[id] = true
          end_request(call, id, args[extra + 3], args[extra + 2], {"visible_tokens", args[extra + 4], "visible_chars",
            args[extra + 5], "stop_match", args[extra + 6], "error", args[extra + 7]})
        end
      end
    end
  end
  lapse(call)
  return {"ok", driver_reply(call, args[3], args[2]), statuses, lengths}
end

-- ARGV  ..., ids
-- returns  {"ok", reply}
local function requeue(keys, args)
  local call, refusal = open_fenced(keys, args)
  if not call then return refusal end
  for i = 5, #args do
    if redis.call("HEXISTS", call.p .. "running:" .. args[3], args[i]) == 1 then
      return_to_queue(call, args[i], args[3], 0)
    end
  end
  return {"ok", driver_reply(call, args[3], args[2])}
end

-- ARGV  ..., ids
-- returns  {"ok", reply}
local function reject(keys, args)
  local call, refusal = open_fenced(keys, args)
  if not call then return refusal end
  for i = 5, #args do
    if redis.call("HEXISTS", call.p .. "waiting", args[i]) == 1 then
      end_request(call, args[i], "expired", "expired", {"error", "it waited longer than its queue timeout"})
    end
  end
  return {"ok", driver_reply(call, args[3], args[2])}
end

local ADOPTED, ADOPT_STALE, ADOPT_DATA_LOSS = 0, 3, 4
local ADOPT_ARGUMENTS = 12

-- The record of a request that the store has lost, as it was when it was claimed. Its readers make themselves known by
-- their next refresh; without one it lapses like others.
local function recreate(call, id, args, at)
  local priority = tonumber(args[at + 5])
  local arrivals = redis.call("HINCRBY", call.p .. "meta", "arrivals", 1)
  redis.call("HSET", call.p .. "request:" .. id, "status", "running", "worker", args[3], "counter", "0",
    "attempts", args[at + 2], "payload_hash", args[at + 3], "payload", args[at + 4], "priority", args[at + 5],
    "tenant", args[at + 6], "num_prompt_tokens", args[at + 7], "max_tokens", args[at + 8], "exempt", args[at + 9],
    "deadline", args[at + 10], "rank", int(priority * PRIORITY_STEP + arrivals), "arrival", int(call.now),
    "queue_timeout", "0", "readers", "1", "watch_nonce", "", "watch_grace", int(ADOPTED_GRACE_MS))
  if args[at + 9] ~= "1" then
    redis.call("ZADD", call.p .. "watches", int(call.now + 2 * ADOPTED_GRACE_MS), id)
  end
  if args[at + 10] ~= "0" then redis.call("ZADD", call.p .. "deadlines", args[at + 10], id) end
  redis.call("HINCRBY", call.p .. "tenants", args[at + 6], 1)
  call.running_delta = call.running_delta + 1
end

-- Whether the request may run here by this assignment; makes it so.
local function take_over(call, id, counter, args, at)
  local r = redis.call("HMGET", call.p .. "request:" .. id, "status", "worker", "counter")
  if not r[1] then
    recreate(call, id, args, at)
  elseif r[1] == "waiting" then
    leave_queue(call, id)
    call.running_delta = call.running_delta + 1
  elseif r[1] == "running" then
    local is_here = r[2] == args[3]
    if tonumber(r[3]) > counter or (not is_here and tonumber(r[3]) == counter) then return false end
    if not is_here then
      redis.call("HDEL", call.p .. "running:" .. r[2], id)
      redis.call("HDEL", call.p .. "flags:" .. r[2], id)
    end
  else
    return false
  end
  return true
end

-- After the store has lost writes: what this worker holds, said by its driver. The longer log wins; where both have a
-- token it must be the same.
-- ARGV  ..., per request: id, assignment, attempts, payload hash, payload, priority, tenant, prompt tokens, max_tokens,
--       exempt, deadline, log bytes
-- returns  {"ok", reply, {statuses}}
local function adopt(keys, args)
  local call, refusal = open_fenced(keys, args)
  if not call then return refusal end
  call.wrote = true
  local statuses = {}
  for at = 5, #args, ADOPT_ARGUMENTS do
    local id, assignment = args[at], args[at + 1]
    local counter = tonumber(string.match(assignment, "^(%d+):"))
    local status = ADOPT_STALE
    if take_over(call, id, counter, args, at) then
      redis.call("HSET", call.p .. "request:" .. id, "status", "running", "worker", args[3], "counter", int(counter))
      local attempts = redis.call("HGET", call.p .. "request:" .. id, "attempts") -- commit compares with the record's
      redis.call("HSET", call.p .. "running:" .. args[3], id, assignment .. " " .. attempts)
      status = ADOPTED
      if append_row(call, id, 0, args[at + 11]) == DATA_LOSS then
        status = ADOPT_DATA_LOSS
        end_request(call, id, "data_loss", "", {"error", "the committed log differs from the worker's rows"})
      end
      ring(call, redis.call("HGET", call.p .. "watchers", id), id)
    end
    statuses[#statuses + 1] = status
  end
  return {"ok", driver_reply(call, args[3], args[2]), statuses}
end

register("adopt", adopt, {"allow-oom"})
register("reject", reject, {"allow-oom"})
register("attach_driver", attach_driver, {"allow-oom"})
register("poll", poll, {"allow-oom"})
register("claim", claim, {"allow-oom"})
register("commit", commit, {"allow-oom"})
register("requeue", requeue, {"allow-oom"})
