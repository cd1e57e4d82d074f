"""When a worker counts as dead, and what ran there returns to the queue.

A beat in the store that stands still, of a worker that this replica does not see: after `reclaim_s`, or sooner where
its address says that nobody lives there any more. Safety does not depend on it: a worker reclaimed by mistake is
fenced, forgets, and draws a new incarnation.

Ordinary async code over an injected store and the loop's clock (I12).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from scheduler_service.store.interface import RequestStore
from shared.errors import StoreUnavailable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSettings:
    sweep_s: float = 0.5
    reclaim_s: float = 2.0  # beat and epoch unchanged, and no sight of the worker, for so long
    # The same where nobody listens at its address: longer than a driver's beats are apart.
    gone_s: float = 0.6
    gone_sweep_s: float = 0.05


class Reclaimer:
    def __init__(
        self,
        store: RequestStore,
        settings: ReclaimSettings,
        *,
        seen_here: Callable[[], set[str]],
        reclaimed: Callable[[], None],
    ) -> None:
        """`seen_here`: incarnations that this replica sees alive now."""
        self._store = store
        self._settings = settings
        self._seen_here = seen_here
        self._reclaimed = reclaimed
        self._still: dict[str, tuple[int, int, float]] = {}  # epoch, beat, unchanged since
        self._gone: set[str] = set()
        self._wake = asyncio.Event()

    def note_gone(self, incarnation: str) -> None:
        """Nobody listens where it was, or another one does."""
        if incarnation not in self._gone:
            self._gone.add(incarnation)
            self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            with contextlib.suppress(StoreUnavailable):
                await self._sweep()
            settings = self._settings
            pause_s = settings.gone_sweep_s if self._gone else settings.sweep_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    async def _sweep(self) -> None:
        incarnations = await self._store.list_workers()
        self._still = {k: v for k, v in self._still.items() if k in incarnations}
        self._gone.intersection_update(incarnations)
        for incarnation in incarnations:
            await self._sweep_worker(incarnation)

    async def _sweep_worker(self, incarnation: str) -> None:
        stored = await self._store.read_worker_beat(incarnation)
        if stored is None or incarnation in self._seen_here():
            self._still.pop(incarnation, None)
            self._gone.discard(incarnation)
            return
        now_s = asyncio.get_running_loop().time()
        epoch, beat = stored
        is_gone = incarnation in self._gone
        limit_s = self._settings.gone_s if is_gone else self._settings.reclaim_s
        known = self._still.get(incarnation)
        if known is None or known[:2] != (epoch, beat):
            self._still[incarnation] = (epoch, beat, now_s)
        elif now_s - known[2] >= limit_s:
            requeued = await self._store.reclaim(incarnation, epoch, beat)
            if requeued is not None:
                logger.warning(
                    "worker %s is gone: %d requests requeued", incarnation, len(requeued)
                )
                self._reclaimed()
