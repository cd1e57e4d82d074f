-- common.lua: what every function of the library uses. First of the files that are joined into it.
--
-- KEYS[1]  the pool's prefix, `tokentide:{<pool>}:`. Every key below is this prefix and a name, so all of a pool's keys
--          share one hash tag and one slot.
-- ARGV[1]  retention_s: how long an ended request is kept
--
-- meta                 hash: marker, write_counter, fingerprint, arrivals, num_running, num_waiting_tokens;
--                      beats_until: the replicas' beats are unbroken until then; amnesty_until: no watch lapses before;
--                      capacity, capacity_since: most tokens that a request may have on some worker, and since when;
--                      strategy: JSON, how batches are formed; num_unread_tokens: made for those that nobody wanted
-- queue                zset: waiting ids by rank = priority * 2^40 + arrival (exact in a double)
-- waiting              hash: id -> packed entry of the queue window (pack_entry)
-- sizes                zset: waiting ids by the most tokens they can come to have (prompt + max_tokens)
-- request:<id>         hash: the record
-- tokens:<id>          string: output ids, u32 little-endian each; length / 4 is the next index
-- running:<incarnation> hash: id -> "<counter>:<nonce> <attempts>"
-- flags:<incarnation>  hash: id -> why its driver has to end it: cancelled, expired
-- batch:<batch>        hash of a static or dynamic batch until its last member has ended: settings (JSON), size
-- members:<batch>      set: all its members; left:<batch> set: those that have not ended
-- workers              set: incarnations attached and not tombstoned
-- worker:<incarnation> hash: epoch, replica, beat, capacity (tokens of the largest request it can run), tombstone
-- quarantined          zset: ids by the time of their quarantine, ms of the store's clock
-- deadlines            zset: ids by deadline, ms of the store's clock
-- watches              zset: ids by the time their watch lapses, ms of the store's clock
-- watchers             hash: id -> replica that reads it
-- tenants              hash: tenant -> live requests (waiting or running)
-- replicas             hash: replica -> "<beat> <ms of its last beat>"
-- bell:<replica>       channel: ids that progressed or ended, each behind its length (u32 LE)
-- bell:all             channel: empty message, drivers look again

local LAPSE_LIMIT = 32 -- lapsed deadlines, as many watches and as many unfit requests, ended in one call
local QUARANTINE_ATTEMPTS = 5 -- two crashes in company, then three alone
local QUARANTINE_S = 86400 -- a quarantined request is kept that long
local ADOPTED_GRACE_MS = 30000 -- what the store has lost waits so long, twice, for a reader
local SCAN_LIMIT = 1024 -- waiting requests looked at for a window, where some do not fit the worker
local PRIORITY_STEP = 1099511627776 -- 2^40 arrivals before priorities would mix
local ENTRY = "<I4I4I4I8I8I4i4I4I4"

-- Redis formats large numbers in Lua differently from version to version: we do it ourselves.
local function int(number)
  return string.format("%.0f", number)
end

local function open_call(keys, args)
  local time = redis.call("TIME")
  return {
    p = keys[1],
    retention_s = args[1],
    now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000),
    bells = {},
    rung = {},
    ring_all = false,
    wrote = false,
    running_delta = 0,
    tokens_delta = 0,
  }
end

-- Ends every call: totals, doorbells, write counter. Returns the write counter.
local function seal(call)
  local meta = call.p .. "meta"
  if call.running_delta ~= 0 then redis.call("HINCRBY", meta, "num_running", int(call.running_delta)) end
  if call.tokens_delta ~= 0 then redis.call("HINCRBY", meta, "num_waiting_tokens", int(call.tokens_delta)) end
  for replica, ids in pairs(call.bells) do
    redis.call("PUBLISH", call.p .. "bell:" .. replica, table.concat(ids))
  end
  if call.ring_all then redis.call("PUBLISH", call.p .. "bell:all", "") end
  if call.wrote then return redis.call("HINCRBY", meta, "write_counter", 1) end
  return tonumber(redis.call("HGET", meta, "write_counter") or 0)
end

-- Rings once a call for an id, whatever happened to it.
local function ring(call, replica, id)
  if not replica or call.rung[id] then return end
  call.rung[id] = true
  local ids = call.bells[replica]
  if not ids then
    ids = {}
    call.bells[replica] = ids
  end
  ids[#ids + 1] = struct.pack("<I4", #id) .. id
end

-- The marker says which instance of the store this is: an emptied one draws another.
local function ensure_marker(call, marker)
  if redis.call("HSETNX", call.p .. "meta", "marker", marker) == 1 then call.wrote = true end
end

local function log_length(call, id)
  return redis.call("STRLEN", call.p .. "tokens:" .. id) / 4
end

local function pack_entry(record, num_output_tokens)
  return struct.pack(ENTRY, record.num_prompt_tokens, num_output_tokens, record.max_tokens, record.arrival,
    record.deadline, record.attempts, record.priority, record.queue_timeout, #record.prefix_hashes)
    .. record.prefix_hashes .. record.tenant
end

local function enter_queue(call, id, rank, record, num_output_tokens)
  redis.call("ZADD", call.p .. "queue", rank, id)
  redis.call("HSET", call.p .. "waiting", id, pack_entry(record, num_output_tokens))
  redis.call("ZADD", call.p .. "sizes", int(record.num_prompt_tokens + record.max_tokens), id)
  call.tokens_delta = call.tokens_delta + record.num_prompt_tokens + num_output_tokens
  call.ring_all = true
  call.wrote = true
end

-- Returns the packed entry; nil if the id does not wait.
local function leave_queue(call, id)
  local entry = redis.call("HGET", call.p .. "waiting", id)
  if not entry then return nil end
  redis.call("ZREM", call.p .. "queue", id)
  redis.call("HDEL", call.p .. "waiting", id)
  redis.call("ZREM", call.p .. "sizes", id)
  local num_prompt_tokens, num_output_tokens = struct.unpack("<I4I4", entry)
  call.tokens_delta = call.tokens_delta - num_prompt_tokens - num_output_tokens
  call.wrote = true
  return entry
end

local function leave_worker(call, id, incarnation)
  redis.call("HDEL", call.p .. "running:" .. incarnation, id)
  redis.call("HDEL", call.p .. "flags:" .. incarnation, id)
  call.running_delta = call.running_delta - 1
  call.wrote = true
end

local function drop_watcher(call, id)
  ring(call, redis.call("HGET", call.p .. "watchers", id), id)
  redis.call("HDEL", call.p .. "watchers", id)
end

local function retain(call, id)
  redis.call("EXPIRE", call.p .. "request:" .. id, call.retention_s)
  redis.call("EXPIRE", call.p .. "tokens:" .. id, call.retention_s)
end

-- The last member has ended: what was held back may be read. Bounded by the batch's size.
local function close_batch(call, batch)
  for _, id in ipairs(redis.call("SMEMBERS", call.p .. "members:" .. batch)) do
    local key = call.p .. "request:" .. id
    local record = redis.call("HMGET", key, "batch", "held", "status")
    if record[1] == batch and record[2] == "1" then
      redis.call("HSET", key, "held", "0")
      if record[3] ~= "waiting" and record[3] ~= "running" then
        drop_watcher(call, id)
        retain(call, id)
      end
    end
  end
  redis.call("DEL", call.p .. "batch:" .. batch, call.p .. "members:" .. batch, call.p .. "left:" .. batch)
end

local function leave_batch(call, id, batch)
  if not batch or batch == "" then return end
  redis.call("SREM", call.p .. "left:" .. batch, id)
  if redis.call("SCARD", call.p .. "left:" .. batch) == 0 then close_batch(call, batch) end
end

-- From here on nobody wants its tokens: those that come all the same are counted.
local function mark_unread(call, id)
  redis.call("HSETNX", call.p .. "request:" .. id, "unread_from", int(log_length(call, id)))
end

-- The one way into a terminal status. `fields`: further fields of the record, flat. Does nothing to an ended request.
local function end_request(call, id, status, finish, fields)
  local key = call.p .. "request:" .. id
  local record = redis.call("HMGET", key, "status", "worker", "tenant", "batch", "held", "unread_from")
  if record[1] == "waiting" then
    leave_queue(call, id)
  elseif record[1] == "running" then
    leave_worker(call, id, record[2])
  else
    return
  end
  -- only a finished answer waits for the batch's end
  local is_held = record[5] == "1" and status == "finished"
  redis.call("HSET", key, "status", status, "finish", finish, "worker", "", "held", is_held and "1" or "0",
    unpack(fields or {}))
  if record[6] and status == "cancelled" then
    local num_unread = log_length(call, id) - tonumber(record[6])
    redis.call("HINCRBY", call.p .. "meta", "num_unread_tokens", int(num_unread))
  end
  redis.call("ZREM", call.p .. "deadlines", id)
  redis.call("ZREM", call.p .. "watches", id)
  if redis.call("HINCRBY", call.p .. "tenants", record[3], -1) <= 0 then
    redis.call("HDEL", call.p .. "tenants", record[3])
  end
  if not is_held then
    drop_watcher(call, id)
    retain(call, id)
  end
  leave_batch(call, id, record[4])
  call.wrote = true
end

-- Waiting: ended at once. Running: flagged until its driver ends it; the first reason holds.
local function end_or_flag(call, id, reason)
  local record = redis.call("HMGET", call.p .. "request:" .. id, "status", "worker")
  if record[1] == "waiting" then
    end_request(call, id, reason, reason)
  elseif record[1] == "running" then
    if redis.call("HSETNX", call.p .. "flags:" .. record[2], id, reason) == 1 then
      mark_unread(call, id)
      call.ring_all = true
      call.wrote = true
    end
  end
end

-- Watches are times of the store's clock, which runs on while no replica reaches the store and nobody can refresh one.
-- So none lapses while the replicas' beats are broken, nor for a lease after that.
local function may_watches_lapse(call)
  local meta = redis.call("HMGET", call.p .. "meta", "beats_until", "amnesty_until")
  return call.now <= tonumber(meta[1] or call.now) and call.now >= tonumber(meta[2] or 0)
end

-- Ends what has lapsed by the store's clock, a bounded number a call.
local function lapse(call)
  local kinds = {{"deadlines", "expired"}, {"watches", "cancelled"}}
  for _, kind in ipairs(kinds) do
    local key = call.p .. kind[1]
    local ids = redis.call("ZRANGEBYSCORE", key, "-inf", int(call.now), "LIMIT", 0, LAPSE_LIMIT)
    if #ids > 0 and kind[1] == "watches" and not may_watches_lapse(call) then ids = {} end
    for _, id in ipairs(ids) do
      end_or_flag(call, id, kind[2])
      redis.call("ZREM", key, id)
      call.wrote = true
    end
  end
end

-- Running -> waiting at its rank; one that was to be ended is ended instead. It comes back as a request like others,
-- of no batch.
local function return_to_queue(call, id, incarnation, more_attempts)
  local flag = redis.call("HGET", call.p .. "flags:" .. incarnation, id)
  if flag then
    end_request(call, id, flag, flag)
    return false
  end
  local key = call.p .. "request:" .. id
  local r = redis.call("HMGET", key, "num_prompt_tokens", "max_tokens", "arrival", "deadline", "attempts", "priority",
    "tenant", "rank", "queue_timeout", "batch", "prefix_hashes")
  local record = {
    num_prompt_tokens = tonumber(r[1]), max_tokens = tonumber(r[2]), arrival = tonumber(r[3]),
    deadline = tonumber(r[4]), attempts = tonumber(r[5]) + more_attempts, priority = tonumber(r[6]), tenant = r[7],
    queue_timeout = tonumber(r[9] or 0), prefix_hashes = r[11] or "",
  }
  if more_attempts > 0 and record.attempts >= QUARANTINE_ATTEMPTS then
    redis.call("HSET", key, "attempts", int(record.attempts))
    end_request(call, id, "quarantined", "quarantined", {"error",
      string.format("its worker died %d times without a new token, at last while nothing else ran", record.attempts)})
    redis.call("ZADD", call.p .. "quarantined", int(call.now), id)
    redis.call("EXPIRE", key, QUARANTINE_S)
    return false
  end
  leave_worker(call, id, incarnation)
  redis.call("HSET", key, "status", "waiting", "worker", "", "attempts", int(record.attempts), "batch", "", "held", "0")
  leave_batch(call, id, r[10])
  enter_queue(call, id, r[8], record, log_length(call, id))
  return true
end

local function is_current(call, incarnation, epoch)
  local worker = redis.call("HMGET", call.p .. "worker:" .. incarnation, "epoch", "tombstone", "capacity")
  call.capacity = worker[3]
  call.stored_epoch, call.is_tombstoned = worker[1], worker[2]
  return worker[1] == epoch and not worker[2]
end

local function entries_of(call, ids)
  if #ids == 0 then return {} end
  return redis.call("HMGET", call.p .. "waiting", unpack(ids))
end

-- The first waiting requests by rank among those that fit the worker, and how many do not. Where the first
-- SCAN_LIMIT are all too large for it: the smallest that wait.
local function queue_window(call, claim_window)
  local queue, sizes = call.p .. "queue", call.p .. "sizes"
  local num_unfit = redis.call("ZCOUNT", sizes, "(" .. call.capacity, "+inf")
  if num_unfit == 0 then
    local ids = redis.call("ZRANGE", queue, 0, claim_window - 1)
    return ids, entries_of(call, ids), 0
  end
  local capacity, ids, entries = tonumber(call.capacity), {}, {}
  for first = 0, SCAN_LIMIT - 1, claim_window do
    local page = redis.call("ZRANGE", queue, first, first + claim_window - 1)
    for i, entry in ipairs(entries_of(call, page)) do
      local num_prompt_tokens, _, max_tokens = struct.unpack("<I4I4I4", entry)
      if num_prompt_tokens + max_tokens <= capacity and #ids < claim_window then
        ids[#ids + 1] = page[i]
        entries[#entries + 1] = entry
      end
    end
    if #ids == claim_window or #page < claim_window then break end
  end
  if #ids == 0 then
    ids = redis.call("ZRANGEBYSCORE", sizes, "-inf", call.capacity, "LIMIT", 0, claim_window)
    entries = entries_of(call, ids)
  end
  return ids, entries, num_unfit
end

-- Seals the call. Returns now, marker, write counter, waiting, running, waiting tokens, ids, entries, flags, and how
-- many of the waiting do not fit the worker.
local function driver_reply(call, incarnation, claim_window)
  local write_counter = seal(call)
  local meta = redis.call("HMGET", call.p .. "meta", "marker", "num_running", "num_waiting_tokens")
  local ids, entries, num_unfit = queue_window(call, tonumber(claim_window))
  return {
    call.now, meta[1] or "", write_counter, redis.call("ZCARD", call.p .. "queue"), tonumber(meta[2] or 0),
    tonumber(meta[3] or 0), ids, entries, redis.call("HGETALL", call.p .. "flags:" .. incarnation), num_unfit,
  }
end

-- The answer to a fence that is not current: the epoch that is stored ("": none), and whether the worker is tombstoned.
local function stale(call)
  return {"stale", call.stored_epoch or "", call.is_tombstoned and 1 or 0}
end

-- What a driver needs to admit a request that runs on its worker.
local function running_record(call, id, assignment)
  local r = redis.call("HMGET", call.p .. "request:" .. id, "payload", "tenant", "priority", "attempts", "batch",
    "payload_hash", "num_prompt_tokens", "max_tokens", "exempt", "deadline")
  local log = redis.call("GET", call.p .. "tokens:" .. id) or ""
  return {id, assignment, r[1], r[2], r[3], r[4], r[5] or "", r[6], r[7], r[8], r[9], r[10], log}
end

local function register(name, callback, flags)
  redis.register_function({function_name = "tokentide_@HASH@_" .. name, callback = callback, flags = flags})
end
