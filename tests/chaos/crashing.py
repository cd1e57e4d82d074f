"""Runs a service of ours with named crash points: `python crashing.py -m scheduler_service ...`.

The product knows nothing of them: functions are wrapped from outside, here. A point is armed while the service runs, by
a small file beside its announcement (`Armed.write`); at its n-th visit from then on a process is ended by SIGKILL: this
one, or the one whose pid was given.
"""

import asyncio
import functools
import gc
import importlib
import mmap
import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE = 256
Filter = Callable[[tuple[Any, ...]], bool]  # given the call's arguments


@dataclass(frozen=True, slots=True)
class Point:
    """A function of the product, and which of its calls count."""

    module: str
    qualified_name: str
    counts: Filter = lambda args: True


def _named(name: str) -> Filter:
    return lambda args: type(args[1]).__name__ == name


STORE, SESSION = "scheduler_service.store.redis_store", "worker_service.session"
IN_SCHEDULER = {
    "submit": Point(STORE, "RedisStore.submit"),
    "claim": Point(STORE, "RedisStore.claim"),
    "plan send": Point("scheduler_service.worker_stream", "WorkerStream.send", _named("BatchPlan")),
    "commit": Point(STORE, "RedisStore.commit", lambda args: bool(args[2])),
    "finish": Point(STORE, "RedisStore.commit", lambda args: any(row.finish for row in args[2])),
    "log read": Point(STORE, "RedisStore.read_logs"),
    "doorbell": Point("scheduler_service.delivery", "Delivery._want"),
    "client write": Point("scheduler_service.output_stream", "OutputStream._chunk"),
    "durable ack": Point(
        "scheduler_service.worker_stream", "WorkerStream.send", _named("DriverHeartbeat")
    ),
    "epoch grant": Point(STORE, "RedisStore.attach_driver"),
    "watch": Point(STORE, "RedisStore.watch"),
    "beat": Point(STORE, "RedisStore.beat"),
    "reclaim": Point(STORE, "RedisStore.reclaim"),
    "requeue": Point(STORE, "RedisStore.requeue"),
}
IN_WORKER = {
    "plan receive": Point(SESSION, "WorkerSession._accept"),
    "forward": Point("worker_service.simulated.compute", "SimulatedCompute.execute"),
    "outbox put": Point("worker_service.outbox", "Outbox.put"),
    "result send": Point("worker_service.driver_stream", "DriverStream.post", _named("StepResult")),
    "outbox forget": Point("worker_service.outbox", "Outbox.forget_up_to"),
    "hello": Point(SESSION, "WorkerSession._grant"),
}


class Armed:
    """The file through which a point is armed. Empty: none is."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def write(self, point: str, when: str, visit: int, victim: int = 0) -> None:
        """`when`: before or after the call. `victim` 0: the process that visits."""
        line = f"{point}|{when}|{visit}|{victim}".encode()
        self._map[1:] = line.ljust(SIZE - 1, b"\0")
        self._map[:1] = b"\1"

    def clear(self) -> None:
        self._map[:1] = b"\0"

    @property
    def is_armed(self) -> bool:
        return self._map[:1] == b"\1"

    def read(self) -> tuple[str, str, int, int]:
        point, when, visit, victim = self._map[1:].rstrip(b"\0").decode().split("|")
        return point, when, int(visit), int(victim)


class Crasher:
    def __init__(self, armed: Armed) -> None:
        self._armed = armed
        self._num_visits = 0
        self._counted: tuple[str, str, int, int] | None = None

    def visit(self, point: str, when: str) -> None:
        if not self._armed.is_armed:
            self._counted = None
            return
        wanted = self._armed.read()
        if wanted != self._counted:
            self._counted, self._num_visits = wanted, 0
        if wanted[:2] != (point, when):
            return
        self._num_visits += 1
        if self._num_visits >= wanted[2]:
            self._armed.clear()
            os.kill(wanted[3] or os.getpid(), signal.SIGKILL)

    def wrap(self, name: str, point: Point) -> None:
        owner_name, function_name = point.qualified_name.split(".")
        owner = getattr(importlib.import_module(point.module), owner_name)
        function = getattr(owner, function_name)
        setattr(owner, function_name, self._wrapped(name, point, function))

    def _wrapped(self, name: str, point: Point, function: Any) -> Any:
        if asyncio.iscoroutinefunction(function):

            @functools.wraps(function)
            async def visited(*args: Any, **kwargs: Any) -> Any:
                if not point.counts(args):
                    return await function(*args, **kwargs)
                self.visit(name, "before")
                result = await function(*args, **kwargs)
                self.visit(name, "after")
                return result

            return visited

        @functools.wraps(function)
        def visited_at_once(*args: Any, **kwargs: Any) -> Any:
            if not point.counts(args):
                return function(*args, **kwargs)
            self.visit(name, "before")
            result = function(*args, **kwargs)
            self.visit(name, "after")
            return result

        return visited_at_once


def main() -> None:
    module = sys.argv[2]
    announced = sys.argv[sys.argv.index("--announce") + 1]
    crasher = Crasher(Armed(armed_file(Path(announced))))
    points = IN_SCHEDULER if module == "scheduler_service" else IN_WORKER
    for name, point in points.items():
        crasher.wrap(name, point)
    signal.signal(signal.SIGUSR2, lambda *_: tell_counts(counted_file(Path(announced))))
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def tell_counts(path: Path) -> None:
    """How many asyncio tasks and how many objects there are, when asked by a signal."""
    gc.collect()
    staging = path.with_suffix(".staging")
    staging.write_text(f"{len(asyncio.all_tasks())} {len(gc.get_objects())}")
    staging.rename(path)


def counted_file(announced: Path) -> Path:
    return announced.with_suffix(".counts")


def armed_file(announced: Path) -> Path:
    return announced.with_suffix(".crash")


if __name__ == "__main__":
    main()
