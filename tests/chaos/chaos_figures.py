"""How long streams pause when something dies: `make chaos-figures KILLS=100`.

Two dozen streams run on and on over simulated workers; a hundred times each the busiest worker's driver is killed, or
stopped, that worker is killed, or the store is. Prints, by kind, p50, p95 and the longest: of all pauses, and of
the worst stream's of each time.
"""

import argparse
import asyncio
import itertools
import logging
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos_load import Ask, Received, read
from chaos_stack import ChaosStack, chaos_stack

from tokentide import Client

NUM_STREAMS = 24
NUM_TOKENS = 250
SETTLE_S = 0.7
RECOVER_S = 30.0
REPLICAS_SETTLE_S = 2.5  # a replica that came back is not taken for live at once


class Load:
    """Streams without end: each request is followed by the next."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names = itertools.count()
        self.current: dict[int, Received] = {}
        self.wrong: list[str] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(NUM_STREAMS):
                tasks.create_task(self._stream(number))

    async def _stream(self, number: int) -> None:
        await asyncio.sleep(number * 0.1)  # so that they do not all begin and end together
        ask = Ask(number, NUM_TOKENS)
        first: list[int] | None = None
        while True:
            received = Received(ask, f"load-{next(self._names)}")
            self.current[number] = received
            await read(self._client, ask, received.request_id, is_calm=True, into=received)
            first = first or received.token_ids
            if received.token_ids != first or received.ended != "length":
                self.wrong.append(f"{received.request_id}: {received.ended}, or other tokens")

    def running(self) -> list[Received]:
        return [one for one in self.current.values() if one.arrivals_s and not one.ended]


@dataclass(slots=True)
class Pauses:
    all_s: list[float] = field(default_factory=list)
    worst_s: list[float] = field(default_factory=list)

    def line(self, kind: str) -> str:
        shares = [
            f"p50 {_share(values, 0.5):.3f}, p95 {_share(values, 0.95):.3f}, most {max(values):.3f} s"
            for values in (self.all_s, self.worst_s)
        ]
        return f"{kind:16} {len(self.worst_s):4} times; streams: {shares[0]}; worst: {shares[1]}"


def _share(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def kill_driver(stack: ChaosStack) -> float:
    worker = await stack.busiest_worker()
    driver = await stack.driver_of(worker) or stack.stack.schedulers[0]
    driver.signal(signal.SIGKILL)
    return _now_s()


async def stop_driver(stack: ChaosStack) -> float:
    worker = await stack.busiest_worker()
    driver = await stack.driver_of(worker) or stack.stack.schedulers[0]
    driver.signal(signal.SIGSTOP)
    return _now_s()


async def kill_worker(stack: ChaosStack) -> float:
    (await stack.busiest_worker()).signal(signal.SIGKILL)
    return _now_s()


async def kill_store(stack: ChaosStack) -> float:
    """The time of its return: what is measured begins there."""
    stack.store.signal(signal.SIGKILL)
    while stack.store.exit_status is None:
        await asyncio.sleep(0.01)
    return await stack.restart_dead() or _now_s()


KINDS: dict[str, Callable[[ChaosStack], Awaitable[float]]] = {
    "driver killed": kill_driver,
    "driver hung": stop_driver,
    "worker killed": kill_worker,
    "store restarted": kill_store,
}


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def one_pause(stack: ChaosStack, load: Load, kind: str, pauses: Pauses) -> None:
    await asyncio.sleep(SETTLE_S)
    at_s = await KINDS[kind](stack)
    hit = [one for one in load.running() if one.arrivals_s[0] < at_s]
    async with asyncio.timeout(RECOVER_S):
        while any(one.pause_after(at_s) is None and not one.ended for one in hit):
            await asyncio.sleep(0.01)
    found = [pause for one in hit if (pause := one.pause_after(at_s)) is not None]
    pauses.all_s += found
    pauses.worst_s.append(max(found))
    await stack.wait_whole()
    if kind.startswith("driver"):
        await asyncio.sleep(REPLICAS_SETTLE_S)


async def main(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="tokentide-chaos-") as folder:
        async with (
            chaos_stack(Path(folder), step_ms=given.step_ms) as stack,
            Client(stack.stack.endpoints) as client,
        ):
            load = Load(client)
            running = asyncio.create_task(load.run())
            await asyncio.sleep(4.0)
            for kind in given.only or KINDS:
                pauses = Pauses()
                for _ in range(given.kills):
                    await one_pause(stack, load, kind, pauses)
                print(pauses.line(kind), flush=True)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    print("\n".join([f"{len(load.wrong)} streams went wrong", *load.wrong[:20]]))
    return 1 if load.wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", help=f"some of: {', '.join(KINDS)}")
    logging.basicConfig(level=logging.ERROR)
    sys.exit(asyncio.run(main(parser.parse_args())))
