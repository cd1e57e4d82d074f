"""The embedded store as one of a local stack's processes: watched and started again like the others."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tokentide.undisturbed import undisturbed

if TYPE_CHECKING:
    from scheduler_service.store.embedded import EmbeddedStore

POLL_S = 0.1


class StoreProcess:
    """Its data is an append-only file: what comes back is what was there."""

    label = "store"

    def __init__(self, store: "EmbeddedStore") -> None:
        self._store = store

    @classmethod
    async def start(cls, data_dir: Path, appendfsync: str) -> "StoreProcess":
        """Raises StoreRefused, StoreUnavailable."""
        # Needs the store's client library, which a mere client of the service does not have.
        from scheduler_service.store.embedded import EmbeddedStore  # noqa: PLC0415

        return cls(await asyncio.to_thread(EmbeddedStore.start, data_dir, appendfsync=appendfsync))

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def server(self) -> Path:
        return self._store.server

    @property
    def pid(self) -> int:
        return self._store.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._store.exit_status

    def signal(self, number: int) -> None:
        if self.exit_status is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Until it has ended. It is not a child of the event loop's, so it is asked."""
        while (status := self._store.exit_status) is None:
            await asyncio.sleep(POLL_S)
        return status

    def why_ended(self) -> str:
        status = self._store.exit_status or 0
        if status < 0:
            return f"{self.label} was ended by {signal.Signals(-status).name}"
        return f"{self.label} ended with exit status {status}"

    async def restart(self, timeout_s: float) -> None:
        """On the same data, socket, port and password, so that schedulers find it where it was."""
        # A thread goes on when its caller is cancelled: `stop` must find what it has started.
        await undisturbed(asyncio.to_thread(self._store.restart, timeout_s))

    async def stop(self) -> None:
        await asyncio.to_thread(self._store.stop)
