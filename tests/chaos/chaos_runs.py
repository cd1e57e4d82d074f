"""Runs of kills and stops against real processes, audited: `make chaos RUNS=100`.

Each run: two dozen streams, one mishap in their middle, all streams read to their ends; what each client received is
compared with the log and with an undisturbed run. One run in ten is on the real model: RUNS below 10 have none.
Prints violations, runs, streams, tokens, kills by kind and pauses.
"""

import argparse
import asyncio
import itertools
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos_load import Ask, Received, read, wrong_with
from chaos_stack import ChaosStack, chaos_stack, real_stack
from mishaps import MISHAPS, REACHED_AT_ONCE, Hit, crash_at, crash_points

from tokentide import Client

NUM_STREAMS = 24
RUN_S = 90.0
DOWN_S = 0.3  # what has died stays dead for so long


@dataclass(slots=True)
class Report:
    num_runs: int = 0
    num_streams: int = 0
    num_tokens: int = 0
    violations: list[str] = field(default_factory=list)
    pauses_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    num_hits: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    not_reached: list[str] = field(default_factory=list)

    def note(self, hit: Hit, received: Sequence[Received]) -> None:
        self.num_runs += 1
        self.num_streams += len(received)
        self.num_tokens += sum(len(one.token_ids) for one in received)
        if hit.at_s is None:
            self.not_reached.append(hit.kind)
            return
        kind = "a named crash point" if hit.kind.startswith("crash") else hit.kind
        self.num_hits[kind] += 1
        pauses = [one.pause_after(hit.at_s) for one in received if not one.ask.is_slow]
        self.pauses_s[kind] += [pause for pause in pauses if pause is not None]

    def lines(self) -> list[str]:
        num_struck = self.num_runs - len(self.not_reached)
        lines = [
            f"{len(self.violations)} violations in {self.num_runs} runs, {num_struck} of which struck:"
            f" {self.num_streams} streams, {self.num_tokens} tokens"
        ]
        for kind, num in sorted(self.num_hits.items()):
            pauses = sorted(self.pauses_s[kind])
            if len(pauses) > 1:
                p50, p99 = statistics.median(pauses), pauses[int(0.99 * (len(pauses) - 1))]
                lines.append(f"  {kind:32} {num:4}   pause p50 {p50:.2f} s, p99 {p99:.2f} s")
            else:
                lines.append(f"  {kind:32} {num:4}")
        if self.not_reached:
            lines.append("  these did not strike, their point was not reached:")
            lines += [f"    {kind}" for kind in self.not_reached]
        return lines + [f"  VIOLATION {line}" for line in self.violations]


class Chaos:
    def __init__(
        self, stack: ChaosStack, client: Client, seed: int, tokens: tuple[int, int]
    ) -> None:
        self._stack = stack
        self._client = client
        self._rng = random.Random(seed)
        source = random.Random(1)  # the same requests in every run
        self._asks = [Ask(number, source.randint(*tokens)) for number in range(NUM_STREAMS)]
        self._expected: list[list[int]] = []
        self._names = itertools.count()
        self.report = Report()

    async def calm(self) -> None:
        """The undisturbed run that all others are compared with."""
        received = await self._read_all("calm", is_calm=True)
        self._expected = [one.token_ids for one in received]
        for ask, one in zip(self._asks, received, strict=True):
            if len(one.token_ids) != ask.max_tokens:
                raise RuntimeError(f"the calm run is not right: {one.request_id} {one.ended}")

    async def _read_all(self, prefix: str, *, is_calm: bool = False) -> list[Received]:
        names = [f"{prefix}-{ask.number}" for ask in self._asks]
        pairs = zip(self._asks, names, strict=True)
        reading = (read(self._client, ask, name, is_calm=is_calm) for ask, name in pairs)
        return await asyncio.gather(*reading)

    async def run(self, name: str) -> None:
        """`name`: of a mishap, or `point/when/victim`."""
        prefix = f"run{next(self._names)}"
        reading = asyncio.create_task(self._read_all(prefix))
        hit = await self._strike(name)
        healing = asyncio.create_task(self._heal())
        try:
            async with asyncio.timeout(RUN_S):
                received = await reading
        except TimeoutError:
            self.report.violations.append(f"{prefix} ({hit.kind}): streams have not ended")
            return
        finally:
            await healing
        self.report.note(hit, received)
        for one, expected in zip(received, self._expected, strict=True):
            wrong = await wrong_with(self._client, one, expected)
            self.report.violations += [f"{hit.kind}: {line}" for line in wrong]

    async def _strike(self, name: str) -> Hit:
        if name in MISHAPS:
            await asyncio.sleep(0.2 + self._rng.random())
            return await MISHAPS[name](self._stack, self._rng)
        point, when, victim = name.split("/")
        if point not in REACHED_AT_ONCE:
            await asyncio.sleep(0.3 * self._rng.random())
        return await crash_at(self._stack, self._rng, point, when, victim)

    async def _heal(self) -> None:
        await asyncio.sleep(DOWN_S)
        await self._stack.wait_whole()


def mishap_names(num_runs: int, seed: int) -> list[str]:
    """Half of them kills and stops in turn, half named crash points, all of which come round."""
    rng = random.Random(seed)
    points = ["/".join(point) for point in crash_points()]
    rng.shuffle(points)
    names = itertools.cycle(MISHAPS), itertools.cycle(points)
    return [next(names[number % 2]) for number in range(num_runs)]


async def run_chaos(
    stack: ChaosStack, names: Sequence[str], *, seed: int, tokens: tuple[int, int], says: bool
) -> Report:
    async with Client(stack.stack.endpoints) as client:
        chaos = Chaos(stack, client, seed, tokens)
        await chaos.calm()
        for number, name in enumerate(names, start=1):
            began_s = time.monotonic()
            await chaos.run(name)
            if says:
                took_s = time.monotonic() - began_s
                num_bad = len(chaos.report.violations)
                print(
                    f"{number} of {len(names)}: {name}, {took_s:.1f} s, {num_bad} bad", flush=True
                )
    return chaos.report


HOW_TO_READ = """\
A run is named by its mishap, or point/when/victim: in forward/after/store the store is killed just after a worker has
passed the point `forward`; `self` is the process that passes. One run in ten is on the real model: {num_real} of these.
"""


async def main(given: argparse.Namespace) -> int:
    num_real = given.runs // 10 if given.model else 0
    bad = False
    print(HOW_TO_READ.format(num_real=num_real), flush=True)
    with tempfile.TemporaryDirectory(prefix="tokentide-chaos-") as folder:
        every_point = ["/".join(point) for point in crash_points()] if given.every_point else None
        names = given.only or every_point or mishap_names(given.runs - num_real, given.seed)
        async with chaos_stack(Path(folder), step_ms=given.step_ms) as stack:
            report = await run_chaos(stack, names, seed=given.seed, tokens=(60, 120), says=True)
        print("\n".join(["on simulated workers:", *report.lines()]), flush=True)
        bad |= bool(report.violations)
    if num_real:
        with tempfile.TemporaryDirectory(prefix="tokentide-chaos-") as folder:
            names = mishap_names(num_real, given.seed + 1)
            async with real_stack(Path(folder), Path(given.model)) as stack:
                report = await run_chaos(stack, names, seed=given.seed, tokens=(30, 60), says=True)
            print("\n".join(["on the real model:", *report.lines()]))
            bad |= bool(report.violations)
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--model", default="", help="folder of the real model, for one run in ten")
    parser.add_argument("--only", nargs="*", help="these mishaps, or point/when/victim")
    parser.add_argument(
        "--every-point", action="store_true", help="each crash point, before and after, each victim"
    )
    logging.basicConfig(level=logging.ERROR)
    sys.exit(asyncio.run(main(parser.parse_args())))
