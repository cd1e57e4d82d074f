"""How long one plan takes: `python -m bench.planner`; `measure()` gives the rows.

Processor time beside wall time: a busy neighbour makes the latter's p99 its own.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass

from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.snapshot import Limits, RunningSequence, Snapshot, WaitingRequest
from shared.blocks import blocks_for

NUM_CALLS = 1000
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    median_ms: float
    p99_ms: float
    cpu_p99_ms: float


def measure() -> Iterator[Row]:
    for num_running, num_waiting, num_queued in ((256, 64, 1000), (32, 64, 64)):
        load = f"{num_running} running, window {num_waiting}, {num_queued} queued"
        for case in ("batch full", "room for all", "blocks short"):
            yield _time(f"{load}, {case}", make_load(num_running, num_waiting, num_queued, case))


def make_load(num_running: int, num_waiting: int, num_queued: int, case: str) -> Snapshot:
    """Seven in eight decode, the others have a prompt to compute; some of the queue ran before."""
    running = tuple(_running(index) for index in range(num_running))
    waiting = tuple(
        WaitingRequest(
            request_id=f"waiting-{index}",
            num_prompt_tokens=100 + index,
            num_output_tokens=20 * (index % 4 == 0),
            max_tokens=200,
        )
        for index in range(num_waiting)
    )
    num_charged = sum(sequence.num_charged_blocks for sequence in running)
    return Snapshot(
        running=running,
        waiting=waiting,
        num_waiting_beyond=num_queued - num_waiting,
        limits=Limits(
            token_budget=16384, max_sequences=num_running * (1 if case == "batch full" else 4)
        ),
        block_size=BLOCK_SIZE,
        num_total_blocks=2 * num_charged,
        num_available_blocks=1 if case == "blocks short" else num_charged,
    )


def _running(index: int) -> RunningSequence:
    num_prompt_tokens = 100 + 7 * (index % 40)
    is_prompt = index % 8 == 0
    num_output_tokens = 0 if is_prompt else 1 + index % 30
    num_tokens = num_prompt_tokens + num_output_tokens
    return RunningSequence(
        request_id=f"running-{index}",
        priority=index % 3,
        rank=index,
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=num_output_tokens,
        num_computed_tokens=32 if is_prompt else num_tokens - 1,
        max_tokens=200,
        num_charged_blocks=blocks_for(num_tokens - (not is_prompt), BLOCK_SIZE),
    )


def _time(name: str, snapshot: Snapshot) -> Row:
    gc.collect()
    wall_ms, cpu_ms = [], []
    for _ in range(NUM_CALLS):
        started, cpu_started = time.perf_counter_ns(), time.thread_time_ns()
        plan_step(snapshot)
        cpu_ms.append((time.thread_time_ns() - cpu_started) / 1e6)
        wall_ms.append((time.perf_counter_ns() - started) / 1e6)
    wall_ms.sort()
    cpu_ms.sort()
    median, p99 = NUM_CALLS // 2, NUM_CALLS * 99 // 100
    return Row(name, wall_ms[median], wall_ms[p99], cpu_ms[p99])


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for row in measure():
        times = f"median {row.median_ms:.3f} ms, p99 {row.p99_ms:.3f} ms, of processor time"
        print(f"plan_step: {row.name:<52} {times} {row.cpu_p99_ms:.3f} ms")


if __name__ == "__main__":
    main()
