"""How the store's functions are called: over which connection, with which errors, loaded when they are missing.

Knows nothing of what the functions do.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import NoPermissionError, OutOfMemoryError, ResponseError

from scheduler_service.store import codec
from scheduler_service.store.acknowledging import Acknowledging
from scheduler_service.store.connecting import without_password
from scheduler_service.store.lane import Argument, Connection, Lane
from scheduler_service.store.library import FunctionLibrary
from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.startup import Durability, check_server
from scheduler_service.store.values import Fence
from shared.errors import StaleFence, StoreRefused, StoreRolledBack, StoreUnavailable
from shared.seldom import Seldom

log = logging.getLogger(__name__)


def _always(reply: Any) -> bool:
    return True


# What a client relies on: its request is accepted, or cancelled; its tokens, and its end, are in the log. And a beat
# that is not acknowledged says that nothing is. With each, whether its reply tells anything.
PROMISES: dict[str, Callable[[Any], bool]] = {
    "submit": _always,
    "cancel": _always,
    "commit": _always,
    "beat": _always,
    "read_logs": codec.tells_output,
}


class StoreCalls:
    """Three connections to one server. Begin with `open`, end with `close`."""

    def __init__(
        self,
        make_connection: Callable[[], Connection],
        prefix: str,
        limits: StoreLimits,
        io_timeout_s: float,
    ) -> None:
        self.prefix = prefix
        self._limits = limits
        self._library = FunctionLibrary.read()
        self._seldom = Seldom()
        self._acknowledging: Acknowledging | None = None  # durability `failover`
        # apart, so that a commit never waits behind a door's calls or a long read
        self.driving = Lane(make_connection, io_timeout_s)
        self.doors = Lane(make_connection, io_timeout_s)
        self.reading = Lane(make_connection, io_timeout_s)

    @property
    def lanes(self) -> tuple[Lane, Lane, Lane]:
        return self.driving, self.doors, self.reading

    async def open(self, url: str, durability: Durability) -> None:
        """Raises StoreRefused if this server cannot keep `durability`, StoreUnavailable if it does not answer."""
        for lane in self.lanes:
            lane.start()
        try:
            await check_server(self.driving, durability)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{without_password(url)}: {error}") from error
        except StoreRefused as error:
            raise StoreRefused(f"{without_password(url)}: {error}") from error
        if durability == "failover":
            self._acknowledging = Acknowledging(lambda: self._command("touch"))
        await self._load_library(self.driving)
        for lane in self.lanes:
            lane.has_been_let_in = True

    async def close(self) -> None:
        for lane in self.lanes:
            await lane.close()

    async def fenced(self, name: str, fence: Fence, *arguments: Argument) -> Sequence[Any]:
        window = self._limits.claim_window
        reply = await self.call(
            self.driving, name, window, fence.incarnation, fence.epoch, *arguments
        )
        if reply[0] == b"stale":
            raise _refusal(fence, *reply[1:])
        rest: Sequence[Any] = reply[1:]
        return rest

    async def call(self, lane: Lane, name: str, *arguments: Argument) -> Any:
        try:
            reply, connection = await self._call_function(lane, name, arguments)
            if self._acknowledging is not None and name in PROMISES and PROMISES[name](reply):
                await self._acknowledging.wait(lane, connection)
            return reply
        except OutOfMemoryError as error:
            if name == "submit":
                raise
            raise StoreUnavailable(f"the store is out of memory: {error}") from error
        except ResponseError as error:
            raise self._as_ours(name, error) from error

    def _as_ours(self, name: str, error: ResponseError) -> Exception:
        """A call that the store refuses: for want of a right, or because of a key that is not of its kind."""
        message = f"the store refuses {name}: {error}"
        if isinstance(error, NoPermissionError) and not self.driving.has_been_let_in:
            return StoreRefused(message)
        if self._seldom.is_due(message, asyncio.get_running_loop().time()):
            log.error("%s", message)
        return StoreUnavailable(message)

    async def ask(self, lane: Lane, *command: Argument) -> Any:
        """A plain command."""
        try:
            return await lane.call(*command)
        except ResponseError as error:
            raise self._as_ours(str(command[0]), error) from error

    async def _call_function(
        self, lane: Lane, name: str, arguments: Sequence[Argument]
    ) -> tuple[Any, int]:
        command = self._command(name, *arguments)
        try:
            return await lane.call_numbered(*command)
        except ResponseError as error:
            if "Function not found" not in str(error):
                raise
        await self._load_library(lane)  # the server is new, or was flushed; nothing has run
        return await lane.call_numbered(*command)

    def _command(self, name: str, *arguments: Argument) -> tuple[Argument, ...]:
        function = self._library.function(name)
        return ("FCALL", function, 1, self.prefix, self._limits.retention_s, *arguments)

    async def _load_library(self, lane: Lane) -> None:
        await lane.call("FUNCTION", "LOAD", "REPLACE", self._library.source)


def _refusal(fence: Fence, stored_epoch: bytes, is_tombstoned: int) -> Exception:
    """A store that knows an older epoch, or none, has lost the one that it granted."""
    if is_tombstoned or (stored_epoch and int(stored_epoch) >= fence.epoch):
        return stale(fence)
    known = stored_epoch.decode() or "none"
    return StoreRolledBack(f"worker {fence.incarnation}: epoch {fence.epoch}, stored is {known}")


def stale(fence: Fence) -> StaleFence:
    return StaleFence(f"worker {fence.incarnation}: epoch {fence.epoch} is not current")
