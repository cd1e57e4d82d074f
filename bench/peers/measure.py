"""One measurement: a system that runs, asked for a workload. Keeps running systems between them."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.long_prompt import run_long_prompt
from bench.peers.machine_load import read_ticks, wait_quiet
from bench.peers.plan import Measurement
from bench.peers.system import Launch, Opened, System
from bench.peers.workloads import quarter_of, requests_of, warm_up_requests
from tokentide.bench.load import Generates, Sampling, run_closed_loop, run_open_loop
from tokentide.bench.operations_watch import Steps
from tokentide.bench.report import Measured, figures
from tokentide.bench.serve import Progress
from tokentide.bench.workload import WorkRequest

RUN_S = 900.0
WARM_UP = 8
NUM_COMPARED = 16  # first output tokens kept, to see that all compute the same


@dataclass(slots=True)
class Running:
    """At most one process of each system, started anew when it is to be started differently."""

    log_dir: Path
    _opened: dict[str, tuple[Launch, Opened, AsyncExitStack]] = field(default_factory=dict)

    async def open(self, system: System, launch: Launch) -> tuple[Opened, bool]:
        """Also whether it was started just now."""
        if system.name in self._opened:
            running, opened, _ = self._opened[system.name]
            if running == launch:
                return opened, False
            await self.close(system.name)
        cleanup = AsyncExitStack()
        opened = await cleanup.enter_async_context(system.open(launch, self.log_dir))
        self._opened[system.name] = (launch, opened, cleanup)
        return opened, True

    async def close(self, name: str) -> None:
        if name in self._opened:
            _, _, cleanup = self._opened.pop(name)
            await cleanup.aclose()

    async def close_all(self) -> None:
        for name in list(self._opened):
            await self.close(name)


async def measure(
    measurement: Measurement,
    running: Running,
    *,
    vocabulary: int,
    rate: float | None,
    progress: Progress,
) -> dict[str, Any]:
    """The row's figures. Raises whatever the system raises."""
    workload, system = measurement.workload, measurement.system
    label = f"{workload.name}, {system.name}, {measurement.step_tokens} tokens a step"
    progress.say(f"{label}: starting")
    opened, is_new = await running.open(system, system.launch(workload, measurement.step_tokens))
    requests = requests_of(workload, repeat=measurement.repeat, vocabulary=vocabulary, rate=rate)
    if system.is_quarter:
        requests = quarter_of(requests)
    if is_new:
        warm_up = warm_up_requests(min(WARM_UP, len(requests)), vocabulary=vocabulary)
        await run_closed_loop(opened.client, warm_up, WARM_UP, Sampling())
    busy_share = await wait_quiet()
    before = read_ticks()
    progress.start(f"{label}, repeat {measurement.repeat + 1}", len(requests))
    async with asyncio.timeout(RUN_S):
        if workload.is_long_prompt:
            result = await run_long_prompt(opened.client, requests, measurement.step_tokens)
        else:
            result = await _run(opened.client, requests, progress)
    return result | {
        "rate": rate,
        "is_quarter": system.is_quarter,
        "busy_share_before": round(busy_share, 3),
        "foreign_share": round(read_ticks().foreign_share_since(before), 3),
        "facts": dict(opened.facts),
    }


async def _run(
    client: Generates, requests: list[WorkRequest], progress: Progress
) -> dict[str, Any]:
    started_s = asyncio.get_running_loop().time()
    observations = await run_open_loop(client, requests, Sampling(), progress.ended)
    measured = Measured(
        observations=observations,
        started_s=started_s,
        totals=None,
        steps=Steps(),
        blocks_per_worker=0.0,
    )
    found = figures(measured)
    wanted = sum(request.max_tokens for request in requests)
    generated = found["throughput"]["num_generated_tokens"]
    if generated != wanted:
        raise ValueError(f"{generated} tokens came, {wanted} were asked for: {found['statuses']}")
    return {
        "duration_s": found["duration_s"],
        "num_generated_tokens": generated,
        "tokens_per_s": found["throughput"]["generated_tokens_per_s"],
        "requests_per_s": found["throughput"]["requests_per_s"],
        "latency_s": found["latency_s"],
        "first_tokens": observations[0].token_ids[:NUM_COMPARED],
    }
