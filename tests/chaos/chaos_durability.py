"""What durability costs: `python tests/chaos/chaos_durability.py --pairs 10`.

64 sequences on a simulated worker with steps of 20 ms, the store's append-only file synced at each write (`power`) and
once a second (`process`), in turns on one stack. Prints the share of time that the worker idled though it had work, and
the processor time of scheduler, worker and store, for each step.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import redis.asyncio
from chaos_load import Ask, read
from chaos_stack import ChaosStack, chaos_stack
from proc_usage import cpu_s

from tokentide import Client
from tokentide.commands.operations_client import OperationsClient

NUM_STREAMS = 64
NUM_TOKENS = 200
LEVELS = {"power": "always", "process": "everysec"}


@dataclass(frozen=True, slots=True)
class Cost:
    bubble_share: float
    cpu_ms: float  # a step


async def measure(
    stack: ChaosStack, client: Client, operations: OperationsClient, name: str
) -> Cost:
    pids = [*(service.pid for service in stack.services), stack.store.pid]
    before, cpu_before_s = await operations.loads(), sum(map(cpu_s, pids))
    asks = [Ask(number, NUM_TOKENS) for number in range(NUM_STREAMS)]
    reading = (read(client, ask, f"{name}-{ask.number}", is_calm=True) for ask in asks)
    received = await asyncio.gather(*reading)
    assert all(one.ended == "length" for one in received)
    totals = (await operations.loads()).totals.since(before.totals)
    used_s = sum(map(cpu_s, pids)) - cpu_before_s
    return Cost(totals.bubble_share, 1e3 * used_s / totals.num_steps)


async def main(num_pairs: int) -> int:
    costs: dict[str, list[Cost]] = {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory(prefix="tokentide-chaos-") as folder:
        async with (
            chaos_stack(Path(folder), num_schedulers=1, num_workers=1) as stack,
            Client(stack.stack.endpoints) as client,
            OperationsClient(stack.stack.operations_endpoints[0]) as operations,
            redis.asyncio.Redis.from_url(stack.stack.redis_url) as server,
        ):
            for number in range(num_pairs + 1):
                for level in sorted(LEVELS, reverse=bool(number % 2)):
                    await server.config_set("appendfsync", LEVELS[level])
                    cost = await measure(stack, client, operations, f"{level}-{number}")
                    if number:  # the first pair warms up
                        costs[level].append(cost)
    for level, found in costs.items():
        bubbles = [100 * cost.bubble_share for cost in found]
        cpu_ms = statistics.median(cost.cpu_ms for cost in found)
        print(
            f"{level:8} bubble {statistics.median(bubbles):.2f} % ({min(bubbles):.2f}-{max(bubbles):.2f}),"
            f" {cpu_ms:.2f} ms of processor time a step of {NUM_STREAMS}"
        )
    pairs = zip(costs["power"], costs["process"], strict=True)
    rises = [100 * (power.bubble_share - process.bubble_share) for power, process in pairs]
    print(f"power over process: {statistics.median(rises):+.2f} points (most {max(rises):+.2f})")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    sys.exit(asyncio.run(main(parser.parse_args().pairs)))
