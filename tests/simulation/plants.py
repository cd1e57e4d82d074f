"""Faults that a test plants in the product: one function replaced, or one line of our Lua. None is a switch in it.

Each says what of it the auditor must name, and which mishaps bring it out (`schedules.FAULTS`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lua_store import Change

from scheduler_service.committer import Committer
from scheduler_service.delivery import Delivery
from scheduler_service.output_stream import OutputStream
from scheduler_service.reader import Reader
from scheduler_service.reclaiming import Reclaimer
from scheduler_service.serving import Serving
from worker_service.session import WorkerSession

Patch = Callable[[Any], None]  # given pytest's monkeypatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    name: str
    reported_as: str
    faults: tuple[str, ...]
    patch: Patch | None = None
    lua: Change | None = None
    poisons: bool = False  # a request that kills its workers has to be there
    first_seed: int = 0  # to save time: histories before it are known to be of no use here


def deliver_before_commit(monkeypatch: Any) -> None:
    commit = Committer._commit

    async def planted(self: Any, rows: Any) -> None:
        self.listener.durable(rows)
        await asyncio.sleep(0.05)
        await commit(self, rows)

    monkeypatch.setattr(Committer, "_commit", planted)


def take_without_looking_at_the_index(monkeypatch: Any) -> None:
    def planted(self: Any, index: int, ids: Any) -> bool:
        self._ids.extend(ids)
        self.num_known += len(ids)
        self._news.set()
        return True

    monkeypatch.setattr(Reader, "take", planted)


class _Keeping(deque[Any]):
    def clear(self) -> None:
        """Plans of the driver before stay."""


def execute_a_dropped_plan(monkeypatch: Any) -> None:
    init = WorkerSession.__init__

    def planted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._plans = _Keeping()

    monkeypatch.setattr(WorkerSession, "__init__", planted)


def execute_a_repeated_plan(monkeypatch: Any) -> None:
    def planted(self: Any, driver: Any, plan: Any) -> None:
        self._plans.append(plan)
        self._plan_came.set()

    monkeypatch.setattr(WorkerSession, "_repeat", planted)


def follow_without_comparing_the_hash(monkeypatch: Any) -> None:
    skip_to = OutputStream.skip_to

    async def planted(self: Any, start: int, prefix_hash: bytes) -> bool:
        return await skip_to(self, start, b"")

    monkeypatch.setattr(OutputStream, "skip_to", planted)


def go_on_over_lost_tokens(monkeypatch: Any) -> None:
    monkeypatch.setattr(Delivery, "recheck_all", lambda self: None)


def decide_a_retry_anew(monkeypatch: Any) -> None:
    submit = Serving.submit

    async def planted(self: Any, raw: Any, *args: Any, **kwargs: Any) -> Any:
        submitted = await submit(self, raw, *args, **kwargs)
        if submitted.created or raw.seed is not None:
            return submitted
        sampling = replace(submitted.spec.sampling, seed=self._draw_seed())
        return replace(submitted, spec=replace(submitted.spec, sampling=sampling))

    monkeypatch.setattr(Serving, "submit", planted)


def reclaim_a_worker_whose_beat_goes_on(monkeypatch: Any) -> None:
    sweep_worker = Reclaimer._sweep_worker

    async def planted(self: Any, incarnation: str) -> None:
        settings, self._settings = self._settings, replace(self._settings, reclaim_s=0.0)
        try:
            await sweep_worker(self, incarnation)
        finally:
            self._settings = settings

    monkeypatch.setattr(Reclaimer, "_sweep_worker", planted)


IN_PYTHON = (
    Plant(
        name="deliver before commit",
        reported_as="I4",
        faults=("kill_driver",),
        patch=deliver_before_commit,
    ),
    Plant(
        name="take rows without looking at the index",
        reported_as="I5",
        faults=("kill_worker",),
        patch=take_without_looking_at_the_index,
    ),
    Plant(
        name="execute a dropped plan",
        reported_as="I10",
        faults=("long_step", "long_step", "kill_driver", "kill_driver"),
        patch=execute_a_dropped_plan,
    ),
    Plant(
        name="execute a repeated plan",
        reported_as="I10",
        faults=("repeat_plans",),
        patch=execute_a_repeated_plan,
    ),
    Plant(
        name="follow without comparing the hash",
        reported_as="I5",
        faults=("store_rolls_back_as_a_worker_dies", "kill_replica"),
        patch=follow_without_comparing_the_hash,
    ),
    Plant(
        name="go on over lost tokens",
        reported_as="I5",
        faults=("store_rolls_back_as_a_worker_dies",),
        patch=go_on_over_lost_tokens,
        first_seed=45,
    ),
    Plant(
        name="decide a retry anew",
        reported_as="I5",
        faults=("store_loses_calls", "store_loses_calls", "store_loses_calls"),
        patch=decide_a_retry_anew,
        first_seed=45,
    ),
    Plant(
        name="reclaim a worker whose beat goes on",
        reported_as="reclaim",
        faults=("cut_path", "cut_path"),
        patch=reclaim_a_worker_whose_beat_goes_on,
    ),
)

IN_LUA = (
    Plant(
        name="skip the epoch check",
        reported_as="fence",
        faults=("stop_replica", "stop_replica"),
        lua=("return worker[1] == epoch and not worker[2]", "return worker[1] and not worker[2]"),
    ),
    Plant(
        name="append without looking at the index",
        reported_as="I5",
        faults=("store_rolls_back",),
        lua=("if at > length then return GAP, length / 4, false end", "at = math.min(at, length)"),
        first_seed=33,
    ),
    Plant(
        name="forget attempts",
        reported_as="poison",
        faults=(),
        lua=(
            'return {"reclaimed", bury(call, args[2], 1)}',
            'return {"reclaimed", bury(call, args[2], 0)}',
        ),
        poisons=True,
    ),
)
