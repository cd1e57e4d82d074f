"""What may happen to a stack of real processes. Each returns when it has begun, with the time of it and who was hit."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from chaos_stack import ChaosStack
from crashing import IN_SCHEDULER, IN_WORKER

from tokentide.processes import ServiceProcess
from tokentide.store_process import StoreProcess

REACH_S = 8.0  # a crash point that is not reached so soon is not reached in this run
POLL_S = 0.005
Victim = ServiceProcess | StoreProcess


@dataclass(frozen=True, slots=True)
class Hit:
    kind: str
    at_s: float | None  # None: the point was not reached


Mishap = Callable[[ChaosStack, random.Random], Awaitable[Hit]]


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def driving(stack: ChaosStack, rng: random.Random) -> ServiceProcess:
    worker = await stack.busiest_worker()
    return await stack.driver_of(worker) or rng.choice(stack.stack.schedulers)


def _killing(kind: str, choose: Callable[[ChaosStack, random.Random], Sequence[Victim]]) -> Mishap:
    async def kill(stack: ChaosStack, rng: random.Random) -> Hit:
        for victim in choose(stack, rng):
            victim.signal(signal.SIGKILL)
        return Hit(kind, _now_s())

    return kill


async def kill_driver(stack: ChaosStack, rng: random.Random) -> Hit:
    (await driving(stack, rng)).signal(signal.SIGKILL)
    return Hit("driver killed", _now_s())


async def kill_worker(stack: ChaosStack, rng: random.Random) -> Hit:
    (await stack.busiest_worker()).signal(signal.SIGKILL)
    return Hit("a worker killed", _now_s())


async def kill_driver_and_worker(stack: ChaosStack, rng: random.Random) -> Hit:
    worker = await stack.busiest_worker()
    driver = await stack.driver_of(worker) or rng.choice(stack.stack.schedulers)
    for victim in (driver, worker):
        victim.signal(signal.SIGKILL)
    return Hit("driver and its worker killed", _now_s())


def _stopping(
    kind: str, choose: Callable[[ChaosStack, random.Random], Awaitable[Victim]], for_s: float
) -> Mishap:
    async def stop(stack: ChaosStack, rng: random.Random) -> Hit:
        victim = await choose(stack, rng)
        victim.signal(signal.SIGSTOP)
        hit = Hit(kind, _now_s())
        await asyncio.sleep(for_s)
        victim.signal(signal.SIGCONT)
        return hit

    return stop


async def _worker(stack: ChaosStack, rng: random.Random) -> Victim:
    return await stack.busiest_worker()


async def _store(stack: ChaosStack, rng: random.Random) -> Victim:
    return stack.store


def _rolling(kind: str, choose: Callable[[ChaosStack], Sequence[ServiceProcess]]) -> Mishap:
    async def roll(stack: ChaosStack, rng: random.Random) -> Hit:
        """One after the other, as a new version is brought in."""
        hit = Hit(kind, _now_s())
        for service in choose(stack):
            service.signal(signal.SIGTERM)
            await service.wait()
            await stack.wait_whole()
        return hit

    return roll


MISHAPS: dict[str, Mishap] = {
    "roll schedulers": _rolling("schedulers rolled", lambda s: s.stack.schedulers),
    "roll workers": _rolling("workers rolled", lambda s: s.stack.workers),
    "kill driver": kill_driver,
    "kill scheduler": _killing("a scheduler killed", lambda s, r: [r.choice(s.stack.schedulers)]),
    "kill worker": kill_worker,
    "kill driver and worker": kill_driver_and_worker,
    "kill schedulers": _killing("all schedulers killed", lambda s, r: s.stack.schedulers),
    "kill workers": _killing("all workers killed", lambda s, r: s.stack.workers),
    "kill everything": _killing("everything killed", lambda s, r: [*s.services, s.store]),
    "kill store": _killing("the store killed", lambda s, r: [s.store]),
    "stop driver": _stopping("driver stopped for 4 s", driving, 4.0),
    "stop worker": _stopping("worker stopped for 5 s", _worker, 5.0),
    "stop store": _stopping("store stopped for 2 s", _store, 2.0),
}


async def die_between_claim_and_plan(stack: ChaosStack, rng: random.Random) -> Hit:
    """What was claimed is at no worker: the next driver gives it back."""
    _arm(stack, stack.stack.schedulers, "claim", "after", visit=1, victim=0)
    await _until_struck(stack, stack.stack.schedulers)
    return Hit("driver died between claim and plan", _now_s())


# While all requests come in, and seldom afterwards.
REACHED_AT_ONCE = ("submit", "claim", "requeue")
RARE = ("submit", "claim", "epoch grant", "reclaim", "requeue", "hello", "watch")
PROVOKED = {  # what has to happen first
    "epoch grant": kill_driver,
    "hello": kill_driver,
    "reclaim": kill_worker,
    "requeue": die_between_claim_and_plan,
    "watch": kill_driver,
}


def crash_points() -> list[tuple[str, str, str]]:
    """All of (point, before or after, who dies): the visiting process, a worker, a scheduler or the store."""
    others = {True: ("self", "worker", "store"), False: ("self", "scheduler", "store")}
    return [
        (point, when, victim)
        for is_scheduler, points in ((True, IN_SCHEDULER), (False, IN_WORKER))
        for point in points
        for when in ("before", "after")
        for victim in others[is_scheduler]
    ]


async def crash_at(
    stack: ChaosStack, rng: random.Random, point: str, when: str, victim: str
) -> Hit:
    """Arm every process that has the point; the first to reach it strikes."""
    has_point = stack.stack.schedulers if point in IN_SCHEDULER else stack.stack.workers
    struck: dict[str, Victim | None] = {
        "self": None,
        "worker": rng.choice(stack.stack.workers),
        "scheduler": rng.choice(stack.stack.schedulers),
        "store": stack.store,
    }
    prey = struck[victim]
    kind = f"crash {when} {point}, of {victim}"
    visit = 1 if point in RARE else rng.randint(1, 12)
    try:
        async with asyncio.timeout(REACH_S):
            if point in PROVOKED:
                await PROVOKED[point](stack, rng)
            _arm(stack, has_point, point, when, visit=visit, victim=prey.pid if prey else 0)
            await _until_struck(stack, has_point)
    except TimeoutError:
        return Hit(kind, None)
    finally:
        for service in has_point:
            stack.armed[service].clear()
    return Hit(kind, _now_s())


def _arm(
    stack: ChaosStack,
    services: Sequence[ServiceProcess],
    point: str,
    when: str,
    *,
    visit: int,
    victim: int,
) -> None:
    for service in services:
        stack.armed[service].write(point, when, visit, victim)


async def _until_struck(stack: ChaosStack, services: Sequence[ServiceProcess]) -> None:
    while all(stack.armed[service].is_armed for service in services):  # cleared as it strikes
        await asyncio.sleep(POLL_S)
