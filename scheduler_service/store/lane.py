"""One connection to the server, shared by all callers through one long-lived actor.

A caller waits on a future and may be cancelled freely: the reply is then dropped, and no other call
can get it, because only the actor reads, and answers come in the order of the questions. Calls made
meanwhile are sent together (pipelined). Knows nothing of requests.
"""

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from shared.errors import StoreRefused, StoreUnavailable

log = logging.getLogger(__name__)

Argument = bytes | str | int
Command = tuple[Argument, ...]

MAX_BACKOFF_S = 1.0
MAX_WAITING_CALLS = 10_000  # more than that are refused: the store is away or hopelessly slow
_PASSING = (BusyLoadingError, ClusterDownError, MasterDownError, ReadOnlyError, TryAgainError)
_PASSING_CODES = ("BUSY", "LOADING", "MISCONF", "NOREPLICAS", "UNBLOCKED", "FAILOVER", "READONLY")


class Connection(Protocol):
    """What is used of redis-py's `Connection`."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    def pack_commands(self, commands: Any) -> list[bytes]: ...
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...
    async def read_response(
        self, disable_decoding: bool = False, timeout: float | None = None
    ) -> Any: ...


_Call = tuple[Command, "asyncio.Future[Any]"]


class Lane:
    """Open with `start`, end with `close`. Connects again by itself, with jitter."""

    def __init__(
        self, make_connection: Callable[[], Connection], reply_timeout_s: float = 5.0
    ) -> None:
        self.on_lost: list[Callable[[], None]] = []  # told when a connection has ended
        self._make_connection = make_connection
        self._reply_timeout_s = reply_timeout_s
        self._waiting: deque[_Call] = deque()  # not sent
        self._sent: deque[_Call] = deque()  # sent, not answered
        self._has_waiting = asyncio.Event()
        self._silence: asyncio.Timeout | None = None  # of the read that is going on
        self._actor: asyncio.Task[None] | None = None
        self._num_connections = 0
        self.has_been_let_in = False  # from then on a refusal may pass

    def start(self) -> None:
        self._actor = asyncio.create_task(self._run(), name="store lane")
        self._actor.add_done_callback(self._on_end)

    async def call(self, *command: Argument) -> Any:
        """The server's reply. Raises StoreUnavailable if there is none (the command may have run),
        ResponseError if it is an error."""
        return (await self.call_numbered(*command))[0]

    async def call_numbered(self, *command: Argument) -> tuple[Any, int]:
        """The same, and on which of this lane's connections it ran: another number, perhaps another server."""
        if self._actor is None or self._actor.done():
            raise StoreUnavailable("the store's connection is closed")
        if len(self._waiting) >= MAX_WAITING_CALLS:
            raise StoreUnavailable(f"{MAX_WAITING_CALLS} calls wait for the store already")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        self._has_waiting.set()
        reply: tuple[Any, int] = await future
        return reply

    async def close(self) -> None:
        if self._actor is not None:
            self._actor.cancel()
            await asyncio.wait([self._actor])

    async def _run(self) -> None:
        backoff_s = 0.0
        while True:
            await self._has_waiting.wait()
            connection = self._make_connection()
            try:
                await connection.connect()
            except (RedisError, OSError) as error:
                self._fail(self._as_unavailable(error), self._waiting)
            else:
                backoff_s = 0.0
                self._num_connections += 1
                await self._serve_until_lost(connection)
                for tell in self.on_lost:
                    tell()
            finally:
                with suppress(RedisError, OSError):
                    await connection.disconnect(nowait=True)
            backoff_s = min(MAX_BACKOFF_S, backoff_s * 2 or 0.02)
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))

    async def _serve_until_lost(self, connection: Connection) -> None:
        """What was sent and not answered fails then; the rest waits for the next connection."""
        try:
            await self._serve(connection)
        except (RedisError, OSError) as error:
            self._fail(self._as_unavailable(error), self._sent)
        except Exception as error:
            # A bug, of ours or of the client library: whatever it is, another connection may do better.
            log.exception("the store's connection failed by a bug")
            self._fail(StoreUnavailable(f"the store's connection failed: {error!r}"), self._sent)

    async def _serve(self, connection: Connection) -> None:
        """Until the connection is lost; raises what ended it."""
        halves = [
            asyncio.create_task(self._write(connection)),
            asyncio.create_task(self._read(connection)),
        ]
        try:
            await asyncio.wait(halves, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for half in halves:
                half.cancel()
            results = await asyncio.gather(*halves, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _write(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            batch = [call for call in self._waiting if not call[1].done()]
            self._waiting.clear()
            if not batch:
                continue
            if not self._sent and self._silence is not None:
                self._silence.reschedule(loop.time() + self._reply_timeout_s)
            self._sent.extend(batch)
            packed = connection.pack_commands([command for command, _ in batch])
            await _send(connection, packed)

    async def _read(self, connection: Connection) -> None:
        """Reads always, so that a connection lost while idle is noticed before the next call."""
        while True:
            reply, error = await self._read_reply(connection)
            if not self._sent:
                raise ConnectionError(f"an answer without a question: {reply or error!r}")
            _, future = self._sent.popleft()
            if not future.done():
                _settle(future, (reply, self._num_connections), error)

    async def _read_reply(self, connection: Connection) -> tuple[Any, Exception | None]:
        limit_s = self._reply_timeout_s if self._sent else None
        try:
            async with asyncio.timeout(limit_s) as self._silence:
                return await connection.read_response(disable_decoding=True, timeout=math.inf), None
        except ResponseError as refused:
            return None, refused
        finally:
            self._silence = None

    def _as_unavailable(self, error: Exception) -> Exception:
        # redis-py wraps what went wrong while connecting
        causes = (error, error.__cause__)
        if any(isinstance(cause, (AuthenticationError, NoPermissionError)) for cause in causes):
            refused = f"the store does not let us in: {error}"
            if not self.has_been_let_in:
                return StoreRefused(refused)
            log.error("%s", refused)  # somebody changes a password: it may let us in again
            return StoreUnavailable(refused)
        return StoreUnavailable(f"no answer from the store: {str(error) or 'it is silent'}")

    def _on_end(self, actor: asyncio.Task[None]) -> None:
        """Whatever ended the actor, nobody waits for ever."""
        if not actor.cancelled() and actor.exception() is not None:
            log.error("the store's connection failed by a bug of ours", exc_info=actor.exception())
        closed = StoreUnavailable("the store's connection is closed")
        self._fail(closed, self._sent)
        self._fail(closed, self._waiting)

    def _fail(self, error: Exception, calls: deque[_Call]) -> None:
        for _, future in calls:
            if not future.done():
                future.set_exception(type(error)(*error.args))  # each its own traceback
        calls.clear()
        if not self._waiting:
            self._has_waiting.clear()


async def _send(connection: Connection, packed: list[bytes]) -> None:
    try:
        await connection.send_packed_command(packed, check_health=False)
    except (AttributeError, RuntimeError) as error:
        # The half that reads saw the end first: redis-py has dropped its writer, or uvloop closed its handle.
        raise ConnectionError(f"closed while it was written to: {error}") from error


def _settle(future: "asyncio.Future[Any]", reply: tuple[Any, int], error: Exception | None) -> None:
    if error is None:
        future.set_result(reply)
    elif isinstance(error, _PASSING) or str(error).startswith(_PASSING_CODES):
        future.set_exception(StoreUnavailable(f"the store is not ready: {error}"))
    else:
        future.set_exception(error)
