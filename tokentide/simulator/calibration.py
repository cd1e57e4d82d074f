"""Fits a profile to a running stack under loads of our own: many batch sizes, lengths and mixes.

One worker, one scheduler, nobody else's requests. Bounded by time: loads follow in an order that
covers the range early, and the last one is broken off.
"""

import asyncio
import contextlib
import random
import uuid
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from shared.cost_fit import FitReport, Sample, fit
from shared.lengths import Lengths
from shared.profiles import Overheads, Profile
from tokentide.bench.load import OK, Observation, Sampling, send
from tokentide.bench.serve import Progress
from tokentide.bench.statistics import median
from tokentide.bench.target import load_average
from tokentide.bench.workload import WorkloadSpec, WorkRequest, make_workload
from tokentide.client import Client
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.readings import Loads, Step, Totals
from tokentide.simulator.step_follower import StepFollower

CONCURRENCIES = (1, 2, 4, 8, 16, 32)
PROMPTS = ("uniform:4-24", "uniform:32-128", "uniform:128-512", "uniform:512-1500")
OUTPUTS = "uniform:4-40"
VOCABULARY = 250  # even a byte-level tokenizer has so many ids
MAX_PROMPT_TOKENS = 6000  # of one load together, so that no load takes all the time
REQUESTS_A_PLACE = 2  # so that prompts also come beside decodes
TRANSIT_NS = 500_000  # of a plan or a result over gRPC on one machine: assumed
SETTLE_S = 0.2  # for the last records to come


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTarget:
    client: Client
    operations: OperationsClient
    block_size: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    concurrency: int
    prompts: str

    @property
    def label(self) -> str:
        return f"{self.concurrency} at once, prompts {self.prompts}"


@dataclass(slots=True)
class Seen:
    """What the loads brought to light."""

    follower: StepFollower = field(default_factory=StepFollower)
    samples: list[Sample] = field(default_factory=list)
    lone: list[tuple[str, float]] = field(default_factory=list)  # request, seconds to first token
    # In steps, until it had its first token: a long prompt takes several.
    first_token_ns: Counter[str] = field(default_factory=Counter)
    salt: str = field(default_factory=lambda: uuid.uuid4().hex)  # a run before left nothing for us

    def add(self, step: Step) -> None:
        for scheduled in step.scheduled:
            if self.follower.awaits_first_token(scheduled.request_id):
                self.first_token_ns[scheduled.request_id] += step.timings.total_ns
        shape = self.follower.shape(step)
        if shape is None or not shape.num_tokens:
            return
        self.samples.append((shape, step.timings.total_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    profile: Profile
    report: FitReport
    num_left_out: int  # steps with others' requests, or that could not be followed


async def calibrate(
    target: CalibrationTarget, *, minutes: float, seed: int, progress: Progress
) -> Calibration:
    """Raises ValueError: a stack that cannot be profiled, or too few steps."""
    loads = await _only_worker(target.operations)
    models = await target.client.models()
    seen = Seen()
    watching = asyncio.create_task(_watch(target.operations, seen))
    try:
        phases = _phases(seed, models[0].max_model_tokens, loads)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(minutes * 60):
                for number, phase in enumerate(phases):
                    await _run_phase(phase, target.client, seen, seed + number, progress)
        progress.say("waiting for the last steps")
        await asyncio.sleep(SETTLE_S)
        if watching.done():
            watching.result()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    after = await target.operations.loads()
    totals = after.totals.since(loads.totals)
    return _fitted(target, seen, after, totals, models[0].max_model_tokens)


async def _only_worker(operations: OperationsClient) -> Loads:
    loads = await operations.loads()
    if len(loads.workers) != 1 or loads.num_replicas != 1 or not loads.workers[0].driven_here:
        raise ValueError(
            f"a profile is made of one worker and one scheduler that drives it, here are "
            f"{len(loads.workers)} and {loads.num_replicas}"
        )
    if loads.num_running or loads.num_waiting:
        raise ValueError("the stack serves others: a profile would be of their load, too")
    return loads


def _phases(seed: int, max_model_tokens: int, loads: Loads) -> list[Phase]:
    """Each once in a shuffled order, then all again, so that a short run has seen the range too."""
    most = min(max_model_tokens, MAX_PROMPT_TOKENS)
    blocks = loads.workers[0].stats.blocks.total
    fitting = [
        Phase(concurrency=concurrency, prompts=prompts)
        for concurrency in CONCURRENCIES
        for prompts in PROMPTS
        if concurrency * int(prompts.rpartition("-")[2]) <= MAX_PROMPT_TOKENS
        and int(prompts.rpartition("-")[2]) < most
        and blocks
    ]
    source = random.Random(seed)
    rounds = [source.sample(fitting, len(fitting)) for _ in range(100)]
    return [phase for phases in rounds for phase in phases]


async def _watch(operations: OperationsClient, seen: Seen) -> None:
    async for step in operations.watch_steps():
        seen.add(step)


async def _run_phase(
    phase: Phase, client: Client, seen: Seen, seed: int, progress: Progress
) -> None:
    spec = WorkloadSpec(
        num_requests=phase.concurrency * REQUESTS_A_PLACE,
        prompt_lengths=Lengths.parse(phase.prompts),
        output_lengths=Lengths.parse(OUTPUTS),
        vocabulary=VOCABULARY,
        seed=seed,
    )
    works = deque(make_workload(spec))
    progress.start(phase.label, len(works))

    async def send_in_turn() -> None:
        while works:
            observation = await _send(client, works.popleft(), seen)
            progress.ended(observation)
            if phase.concurrency == 1 and observation.first_token_s is not None:
                first_s = observation.first_token_s - observation.sent_s
                seen.lone.append((observation.request_id, first_s))

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(phase.concurrency):
                tasks.create_task(send_in_turn())
    except* ValueError as group:
        raise ValueError(str(group.exceptions[0])) from group


async def _send(client: Client, work: WorkRequest, seen: Seen) -> Observation:
    observation = Observation(request_id=uuid.uuid4().hex, due_s=0.0)
    seen.follower.expect(observation.request_id, len(work.prompt), work.max_tokens)
    await send(client, work, observation, Sampling(cache_salt=seen.salt))
    if observation.status != OK:
        raise ValueError(
            f"the stack refused a request of {len(work.prompt)} tokens: {observation.status}"
        )
    return observation


def _fitted(
    target: CalibrationTarget, seen: Seen, loads: Loads, totals: Totals, max_model_tokens: int
) -> Calibration:
    costs, report = fit(seen.samples)
    worker = loads.workers[0]
    blocks, memory = worker.stats.blocks, worker.stats.memory
    when = datetime.now(UTC).isoformat(timespec="seconds")
    profile = Profile(
        name=target.name,
        model=loads.model,
        device=worker.name,
        dtype="as served",
        block_size=target.block_size,
        num_blocks=blocks.total,
        max_model_tokens=max_model_tokens,
        kv_bytes_per_token=memory.kv_bytes // (blocks.total * target.block_size),
        costs=costs,
        overheads=_overheads(seen, totals),
        sources={
            "machine": f"load average where the loads came from: {load_average()}",
            "costs": f"`tokentide profile` at {when}: {report.num_samples} steps, relative error "
            f"median {report.median_error:.3f}, p95 {report.p95_error:.3f}",
            "overheads": "gap, planning, commit: measured means; way of a plan or a result: assumed "
            f"{TRANSIT_NS / 1e6:g} ms; submit: what is left of lone requests' time to first token",
        },
    )
    return Calibration(profile=profile, report=report, num_left_out=seen.follower.num_left_out)


def _overheads(seen: Seen, totals: Totals) -> Overheads:
    plan_ns = totals.plan_ns // max(totals.num_steps, 1)
    overheads = Overheads(
        # The mean, not the median: now and then the host is late, and that is what bubbles are.
        gap_ns=totals.bubble_ns // max(totals.num_steps, 1),
        dispatch_ns=plan_ns + 2 * TRANSIT_NS,
        deliver_ns=totals.commit_ns // max(totals.num_commits, 1) + TRANSIT_NS,
    )
    known_ns = overheads.dispatch_ns + overheads.deliver_ns
    left_ns = [
        first_s * 1e9 - seen.first_token_ns[request_id] - known_ns
        for request_id, first_s in seen.lone
        if request_id in seen.first_token_ns
    ]
    return replace(overheads, submit_ns=max(0, round(median(left_ns)))) if left_ns else overheads
