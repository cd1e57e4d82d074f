"""What happens to a stack while twenty clients read: each phase has its time, and its streams have theirs."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from compose_load import Load, Tally
from compose_stack import KINDS, Container, Stack, wait_serving

PAUSE_S = 12.0  # long enough to be lost: a worker after 2 s, a scheduler's clients after 9 s
NUM_SCHEDULERS, NUM_WORKERS = 3, 2
COUNTS = {"scheduler": NUM_SCHEDULERS, "worker": NUM_WORKERS, "valkey": 1}


@dataclass(slots=True)
class Report:
    rows: list[tuple[str, float, Tally | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, name: str, seconds: float, tally: Tally | None = None) -> None:
        self.rows.append((name, seconds, tally))
        told = f"{name:<44} {seconds:7.1f} s"
        if tally is not None:
            told += (
                f"   {tally.num_finished:4d} streams, {len(tally.failed)} failed, "
                f"{len(tally.changed)} changed, longest pause {tally.longest_pause_s:5.1f} s"
            )
            self.wrong += [f"{name}: {what}" for what in (*tally.failed, *tally.changed)]
            if tally.num_finished == 0:
                self.wrong.append(f"{name}: no stream finished")
        print(told, flush=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"  {text}", flush=True)


async def under_load(load: Load, report: Report, name: str, act: Callable[[], None]) -> None:
    """The act while streams run; those that it met are read to their ends."""
    stop = asyncio.Event()
    running = asyncio.create_task(load.run_while(stop))
    try:
        await asyncio.sleep(2.0)  # they are in the middle of it
        began_s = time.monotonic()
        await asyncio.to_thread(act)
        seconds = time.monotonic() - began_s
    finally:
        stop.set()
        tally = await running
    report.add(name, seconds, tally)


def scale(stack: Stack) -> None:
    stack.compose(
        *("up", "--detach", "--no-recreate"),
        *("--scale", f"scheduler={NUM_SCHEDULERS}", "--scale", f"worker={NUM_WORKERS}"),
    )
    stack.wait_healthy(*KINDS)
    for service, count in COUNTS.items():
        found = len(stack.containers(service))
        assert found == count, f"{found} containers of {service}, {count} wanted"


def follow_name_inside(stack: Stack, report: Report) -> None:
    """A client in a container of its own finds the schedulers by name, and those that come later too."""
    script = Path(__file__).with_name("inside_client.py").read_text()
    stack.compose(
        *("up", "--detach", "--no-recreate", "--scale", "scheduler=1", "--no-deps", "scheduler")
    )
    stack.wait_healthy("scheduler")
    scaling = threading.Timer(5.0, lambda: scale(stack))
    scaling.start()
    client = ("run", "--rm", "--entrypoint", "python", "client", "-c", script, str(NUM_SCHEDULERS))
    said = json.loads(stack.compose(*client).splitlines()[-1])
    scaling.join()
    if len(said["addresses"]) != NUM_SCHEDULERS or said["failed"] or not said["finished"]:
        report.wrong.append(f"a client inside, by name: {said}")
    report.note(f"a client inside, by name, schedulers 1 to {NUM_SCHEDULERS}: {said}")


async def run_faults(stack: Stack, load: Load, report: Report) -> None:
    """Each kind of container is killed, stopped and paused, then everything is rolled."""
    for service in KINDS:
        for deed in (kill, stop_and_start, pause):
            victim = stack.containers(service)[0]

            def act(deed: "Deed" = deed, victim: Container = victim) -> None:
                deed(stack, victim)
                stack.wait_healthy(*KINDS)

            await under_load(load, report, f"{deed.__name__.replace('_', ' ')} {victim.name}", act)
    await under_load(load, report, "restart valkey", lambda: restart(stack, "valkey"))
    for service in KINDS:
        await under_load(load, report, f"roll {service}", lambda s=service: roll(stack, s))  # type: ignore[misc]


Deed = Callable[[Stack, Container], None]


def kill(stack: Stack, victim: Container) -> None:
    """It comes back by itself, by its restart policy."""
    stack.kill(victim)
    deadline_s = time.monotonic() + 60
    while stack.container(victim.name).started_at == victim.started_at:
        assert time.monotonic() < deadline_s, f"{victim.name} was not started again"
        time.sleep(0.2)


def stop_and_start(stack: Stack, victim: Container) -> None:
    """At SIGTERM it hands over and ends by itself, before its grace is over."""
    stack.engine.docker("stop", victim.name)
    exit_code = stack.container(victim.name).exit_code
    assert exit_code == 0, f"{victim.name} ended with {exit_code}: it did not hand over in time"
    stack.engine.docker("start", victim.name)


def pause(stack: Stack, victim: Container) -> None:
    stack.engine.docker("pause", victim.name)
    time.sleep(PAUSE_S)
    stack.engine.docker("unpause", victim.name)


def restart(stack: Stack, service: str) -> None:
    stack.compose("restart", service)
    stack.wait_healthy(*KINDS)


def roll(stack: Stack, service: str) -> None:
    before = {c.started_at for c in stack.containers(service)}
    stack.shell(f"./roll {service}")
    after = stack.containers(service)
    assert len(after) == COUNTS[service]
    assert not before & {c.started_at for c in after}, f"{service} was not replaced"
    stack.wait_healthy(*KINDS)


def time_scheduler_start(stack: Stack, report: Report) -> None:
    """From a container's start until it says SERVING, with a store and a worker that are there."""
    victim = stack.containers("scheduler")[0]
    stack.engine.docker("restart", victim.name)
    fresh = stack.container(victim.name)
    seconds = wait_serving(fresh, fresh.ports[0])
    report.note(f"a scheduler's start to SERVING: {seconds:.1f} s")
    stack.wait_healthy(*KINDS)
