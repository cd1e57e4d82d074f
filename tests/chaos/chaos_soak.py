"""Half an hour of streams, cancels, kills and resumes: `make soak MINUTES=30`.

One scheduler and one worker are killed again and again; the others, and the store, live through it all, and their
resident memory is watched. At the end nothing may be left: tasks, streams, blocks, keys.
"""

import argparse
import asyncio
import itertools
import logging
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import redis.asyncio
from chaos_load import Ask, Received, read
from chaos_stack import ChaosStack, chaos_stack
from crashing import counted_file
from proc_usage import num_files, resident_bytes

from tokentide import Client
from tokentide.commands.operations_client import OperationsClient
from tokentide.processes import ServiceProcess

NUM_STREAMS = 16
STEP_MS = 40.0
RETENTION_S = 30  # what has ended is soon forgotten: the store's memory has to be flat too
WARM_UP_SHARE = 0.25  # apart, not looked at: modules are loaded, caches fill, allocators settle
SAMPLE_S = 5.0
MIB = 1024 * 1024
COUNTED = ("tasks", "objects", "files")


class Soak:
    def __init__(self, stack: ChaosStack, client: Client) -> None:
        self._stack = stack
        self._client = client
        self._rng = random.Random(1)
        self._names = itertools.count()
        self._expected: dict[int, list[int]] = {}
        self.num_streams = self.num_left = self.num_kills = 0
        self.wrong: list[str] = []
        self.samples: dict[str, list[tuple[float, int]]] = defaultdict(list)

    @property
    def lasting(self) -> list[ServiceProcess]:
        """Those that are never killed."""
        stack = self._stack.stack
        return [stack.schedulers[0], stack.schedulers[1], stack.workers[0]]

    async def run(self, for_s: float) -> None:
        """Load and kills; at the end all is whole and at rest, and what has ended is forgotten."""
        until_s = time.monotonic() + for_s
        self.samples.clear()
        async with asyncio.TaskGroup() as tasks:
            for number in range(NUM_STREAMS):
                tasks.create_task(self.stream(number, until_s))
            tasks.create_task(self.kill(until_s))
            tasks.create_task(self.sample(until_s))
        await self._stack.wait_whole()
        await asyncio.sleep(RETENTION_S + 15)

    async def stream(self, number: int, until_s: float) -> None:
        """One request after the other; some readers leave in the middle."""
        while time.monotonic() < until_s:
            ask = Ask(number, 30 + 10 * number)
            received = Received(ask, f"soak-{next(self._names)}")
            reading = asyncio.create_task(
                read(self._client, ask, received.request_id, is_calm=True, into=received)
            )
            if self._rng.random() < 0.2:
                await asyncio.wait((reading,), timeout=self._rng.random() * 3)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                self.num_left += 1
            else:
                await reading
                self._judge(received)
            self.num_streams += 1

    def _judge(self, received: Received) -> None:
        expected = self._expected.setdefault(received.ask.number, received.token_ids)
        if received.ended != "length" or received.token_ids != expected:
            self.wrong.append(f"{received.request_id}: {received.ended}, or other tokens")

    async def kill(self, until_s: float) -> None:
        stack = self._stack.stack
        while time.monotonic() < until_s:
            await asyncio.sleep(4 + 8 * self._rng.random())
            victim = self._rng.choice((stack.schedulers[2], stack.workers[1]))
            victim.signal(self._rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            self.num_kills += 1
            await victim.wait()
            await asyncio.sleep(self._rng.random())
            await victim.restart(60)

    async def sample(self, until_s: float) -> None:
        began_s = time.monotonic()
        pids = {s.label: s.pid for s in self.lasting} | {"store": self._stack.store.pid}
        while time.monotonic() < until_s:
            for name, pid in pids.items():
                self.samples[name].append((time.monotonic() - began_s, resident_bytes(pid)))
            await asyncio.sleep(SAMPLE_S)

    def slopes(self) -> list[str]:
        lines = []
        for name, samples in self.samples.items():
            times_s, sizes = zip(*samples, strict=True)
            slope = statistics.linear_regression(times_s, sizes).slope
            # Of what grows ever more slowly, one line through it all says too much.
            at = ", ".join(f"{sizes[i * (len(sizes) - 1) // 3] / MIB:.1f}" for i in range(4))
            lines.append(f"{name:12} {at} MiB: {3600 * slope / MIB:+.2f} MiB an hour")
        return lines


async def counts_of(service: ServiceProcess) -> tuple[int, int, int]:
    """Its tasks, objects and open files."""
    counted = counted_file(service.announce_path)
    counted.unlink(missing_ok=True)
    service.signal(signal.SIGUSR2)
    async with asyncio.timeout(10):
        while not counted.exists():
            await asyncio.sleep(0.02)
    num_tasks, num_objects = map(int, counted.read_text().split())
    return num_tasks, num_objects, num_files(service.pid)


async def left_over(stack: ChaosStack) -> list[str]:
    """What is still there though nothing runs and what has ended is forgotten."""
    lines = []
    async with redis.asyncio.Redis.from_url(stack.stack.redis_url) as server:
        keys = [key.decode() async for key in server.scan_iter(match="*", count=1000)]
        requests = [key for key in keys if "request:" in key or "tokens:" in key]
        lasting = [key for key in keys if await server.ttl(key) == -1]
        lines.append(
            f"keys: {len(keys)}, {len(requests)} of requests, {len(lasting)} without an end"
        )
    for endpoint in stack.stack.operations_endpoints:
        async with OperationsClient(endpoint) as operations:
            loads = await operations.loads()
            held = sum(worker.stats.blocks.held for worker in loads.workers)
            lines.append(
                f"{endpoint}: {loads.num_streams} streams, {loads.num_running} running, {held} blocks held"
            )
    return lines


async def main(minutes: float) -> int:
    with tempfile.TemporaryDirectory(prefix="tokentide-chaos-") as folder:
        arguments = ("--retention-s", str(RETENTION_S))
        async with (
            chaos_stack(Path(folder), step_ms=STEP_MS, scheduler_args=arguments) as stack,
            Client(stack.stack.endpoints) as client,
        ):
            soak = Soak(stack, client)
            await soak.run(WARM_UP_SHARE * minutes * 60)
            before = {service.label: await counts_of(service) for service in soak.lasting}
            await soak.run((1 - WARM_UP_SHARE) * minutes * 60)
            print(
                f"{soak.num_streams} streams, {soak.num_left} readers left, {soak.num_kills} kills,"
                f" {len(soak.wrong)} wrong"
            )
            print("\n".join([*soak.slopes(), *(await left_over(stack))]))
            for service in soak.lasting:
                changes = zip(COUNTED, before[service.label], await counts_of(service), strict=True)
                print(f"{service.label:12} {', '.join(f'{n} {a} -> {b}' for n, a, b in changes)}")
            print("\n".join(soak.wrong[:20]))
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    logging.basicConfig(level=logging.ERROR)
    sys.exit(asyncio.run(main(parser.parse_args().minutes)))
