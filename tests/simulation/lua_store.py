"""The real store under a simulated history: our Lua in a real server, on the history's clock.

Calls block the history until they are answered, so that a seed replays; the server is asked from a loop of its own.
The clock is the only line of the functions that is replaced. Bells do not ring: hints only, polls cover them.
"""

import asyncio
import hashlib
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from scheduler_service.store.library import FunctionLibrary
from scheduler_service.store.redis_store import RedisStore

Change = tuple[str, str]  # a line of our Lua, and what stands there instead

CLOCK_KEY = "simulated_ms"
ON_OUR_CLOCK: Change = (
    'local time = redis.call("TIME")',
    f'local ms = tonumber(redis.call("GET", "{CLOCK_KEY}"))\n'
    "  local time = {math.floor(ms / 1000), ms % 1000 * 1000}",
)


def changed_library(*changes: Change) -> FunctionLibrary:
    source = FunctionLibrary.read().source.partition("\n")[2]
    for old, new in changes:
        assert source.count(old) == 1, f"{source.count(old)} times in our Lua: {old}"
        source = source.replace(old, new)
    name = f"simulated_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    original = FunctionLibrary.read().name
    return FunctionLibrary(name, f"#!lua name={name}\n{source.replace(original, name)}")


class LuaStore:
    """What `Cluster` needs of a store, over `RedisStore`."""

    def __init__(
        self,
        url: str,
        loop: asyncio.AbstractEventLoop,
        library: FunctionLibrary,
        *,
        now_ms: Callable[[], int],
        draw_nonce: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._server = redis.Redis.from_url(url)
        self._server.flushall()
        self._server.set(CLOCK_KEY, now_ms())
        self._opened = RedisStore.connect(url, pool=uuid.uuid4().hex, draw_nonce=draw_nonce)
        self._store: Any = self._on_loop(self._opened.__aenter__())
        self._store._calls._library = library
        self._server.execute_command("FUNCTION", "LOAD", "REPLACE", library.source)

    def _on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def blocking(*args: Any) -> Any:
            self._server.set(CLOCK_KEY, self._now_ms())
            return self._on_loop(call(*args))

        return blocking

    async def doorbells(self, replica_id: str) -> AsyncIterator[tuple[str, ...]]:
        yield ()
        await asyncio.Event().wait()

    def saved(self) -> Any:
        keys: Sequence[bytes] = self._server.keys("tokentide:*")  # type: ignore[assignment]
        return [(key, self._server.dump(key), max(0, self._server.pttl(key))) for key in keys]

    def restore(self, state: Any) -> None:
        self.empty()
        for key, value, ttl_ms in state:
            self._server.restore(key, ttl_ms, value)

    def empty(self) -> None:
        for key in self._server.keys("tokentide:*"):  # type: ignore[union-attr]
            self._server.delete(key)

    def leave(self) -> None:
        self._on_loop(self._opened.__aexit__(None, None, None))
        self._server.close()


@contextmanager
def lua_stores(url: str, *changes: Change) -> Iterator[Callable[..., LuaStore]]:
    """Opens stores on a server that is ours alone; with changed lines, if any are given."""
    library = changed_library(ON_OUR_CLOCK, *changes)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opened: list[LuaStore] = []

    def open_store(**given: Any) -> LuaStore:
        opened.append(LuaStore(url, loop, library, **given))
        return opened[-1]

    try:
        yield open_store
    finally:
        for store in opened:
            store.leave()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
