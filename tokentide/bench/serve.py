"""`tokentide bench serve`: loads of one or several sizes, and plain transformers beside them if asked.

Each case runs `repeat` times, cases in turn; the service and transformers never compute at once.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from shared.lengths import Lengths
from tokentide.bench.baseline import TransformersBaseline
from tokentide.bench.load import Observation, Sampling, run_closed_loop, run_open_loop
from tokentide.bench.load_facts import load_facts
from tokentide.bench.operations_watch import Steps
from tokentide.bench.report import METHODS, SCHEMA, Measured, figures
from tokentide.bench.statistics import ratio
from tokentide.bench.subject import subject
from tokentide.bench.summary import summarize
from tokentide.bench.target import (
    Target,
    TargetSpec,
    load_average,
    machine_facts,
    model_folder,
    open_target,
)
from tokentide.bench.trials import TrialProgress
from tokentide.bench.workload import WorkloadSpec, WorkRequest, make_workload

MIN_REQUESTS = 4
NUM_ARRIVALS = 256  # so that a p99 is more than the slowest of a few
SEED_STRIDE = 1000  # between cases: their prompts must not meet in the prefix cache
WARM_UP_SEED = 1 << 40
WARM_UP_LENGTHS = (Lengths.parse("fixed:16"), Lengths.parse("fixed:4"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    target: TargetSpec
    concurrencies: tuple[int, ...] = (8,)  # closed loop; ignored with arrivals
    is_open_loop: bool = False
    spec: WorkloadSpec  # num_requests is replaced per case unless given
    num_requests: int | None = None  # None: the concurrency, at least MIN_REQUESTS; or NUM_ARRIVALS
    requests: tuple[WorkRequest, ...] = ()  # of a file; instead of the generator
    warmup: int | None = None  # requests before each load; None: the concurrency
    cut_s: float = 0.0  # left out at the start of each load
    repeat: int = 1
    sampling: Sampling
    compare_transformers: bool = False
    keep: Callable[[dict[str, Any]], None] = lambda _: None  # told of the report after each run
    save: Callable[[Sequence[WorkRequest]], None] | None = None  # told of the first case's requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load: so many at once, or arrivals."""

    index: int
    concurrency: int | None  # None: open loop
    repeat: int

    @property
    def label(self) -> str:
        return "open loop" if self.concurrency is None else f"{self.concurrency} at once"


class Progress(TrialProgress):
    """What a run tells whoever watches it."""

    def start(self, label: str, num_requests: int) -> None: ...
    def ended(self, observation: Observation) -> None: ...


async def run_serve(options: ServeOptions, progress: Progress) -> dict[str, Any]:
    """The report as it is printed with --json."""
    async with contextlib.AsyncExitStack() as cleanup:
        target = await cleanup.enter_async_context(open_target(options.target, progress.say))
        baseline = None
        if options.compare_transformers:
            folder = model_folder(options.target, progress.say)
            progress.say("loading the model into transformers")
            baseline = await TransformersBaseline.start(folder, *_worker_dtype(options.target))
            await cleanup.enter_async_context(baseline)
        work = _run_cases(options, target, baseline, progress)
        return await (target.stack.run(work) if target.stack else work)


async def _run_cases(
    options: ServeOptions,
    target: Target,
    baseline: TransformersBaseline | None,
    progress: Progress,
) -> dict[str, Any]:
    """What is finished is kept after each run: a long benchmark may be stopped."""
    runs: list[dict[str, Any]] = []
    report: dict[str, Any] = {}
    for case in _cases(options):
        runs.append(await _run_case(case, options, target, baseline, progress))
        report = _report(options, target, baseline, runs)
        options.keep(report)
    return report


def _cases(options: ServeOptions) -> list[Case]:
    concurrencies: tuple[int | None, ...] = options.concurrencies
    if options.is_open_loop:
        concurrencies = (None,)
    return [
        Case(index=index, concurrency=concurrency, repeat=repeat)
        for repeat in range(options.repeat)
        for index, concurrency in enumerate(concurrencies)
    ]


async def _run_case(
    case: Case,
    options: ServeOptions,
    target: Target,
    baseline: TransformersBaseline | None,
    progress: Progress,
) -> dict[str, Any]:
    requests = requests_of(case, options)
    if options.save is not None and case.index == case.repeat == 0:
        options.save(requests)
    run: dict[str, Any] = {
        "case": case.label,
        "concurrency": case.concurrency,
        "repeat": case.repeat,
        "load_average_before": load_average(),
    }
    plain: dict[str, Any] = {}
    if baseline is not None and case.repeat % 2:  # who goes first takes turns
        plain = await _run_baseline(case, requests, baseline, progress)
    measured = await measure_load(case, requests, options, target, progress)
    if baseline is not None and not case.repeat % 2:
        plain = await _run_baseline(case, requests, baseline, progress)
    run |= figures(measured)
    if plain:
        run["transformers"] = _compared(run, plain, measured.observations)
    return run


async def measure_load(
    case: Case,
    requests: Sequence[WorkRequest],
    options: ServeOptions,
    target: Target,
    progress: Progress,
    *,
    keep_spans: bool = False,
) -> Measured:
    """Warms up, then sends the requests. Observations are in the order of the requests."""
    concurrency = case.concurrency or len(requests)
    await _warm_up(case, options, target, progress)
    loop, watch = asyncio.get_running_loop(), target.watch
    async with watch.steps(keep_spans=keep_spans) as steps:
        before = await watch.read_settled() if watch else None
        started_s = loop.time()
        progress.start(case.label, len(requests))
        async with _cut(options.cut_s, target, steps) as cut:
            if case.concurrency is None:
                observations = await run_open_loop(
                    target.client, requests, options.sampling, progress.ended
                )
            else:
                observations = await run_closed_loop(
                    target.client, requests, concurrency, options.sampling, progress.ended
                )
        after = await watch.read_settled() if watch else None
    start = cut[0] if cut else (before.totals if before else None, started_s)
    return Measured(
        observations=observations,
        started_s=start[1],
        totals=after.totals.since(start[0]) if after and start[0] else None,
        steps=steps,
        blocks_per_worker=after.blocks_per_worker if after else 0.0,
        is_open_loop=case.concurrency is None,
    )


@contextlib.asynccontextmanager
async def _cut(cut_s: float, target: Target, steps: Steps) -> AsyncIterator[list[Any]]:
    """After `cut_s`, notes (the sums so far, the time) in the list it gives."""
    noted: list[Any] = []

    async def note() -> None:
        await asyncio.sleep(cut_s)
        totals = (await target.watch.read()).totals if target.watch else None
        steps.forget_durations()
        noted.append((totals, asyncio.get_running_loop().time()))

    task = asyncio.create_task(note()) if cut_s > 0 else None
    try:
        yield noted
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _warm_up(case: Case, options: ServeOptions, target: Target, progress: Progress) -> None:
    """Other, short requests, so that the first ones measured do not pay for what is done once."""
    number = options.warmup if options.warmup is not None else case.concurrency or MIN_REQUESTS
    if number < 1:
        return
    progress.say(f"warming up with {number} requests")
    prompts, outputs = WARM_UP_LENGTHS
    spec = replace(
        options.spec,
        num_requests=number,
        prompt_lengths=prompts,
        output_lengths=outputs,
        shared_prefix=0,
        seed=WARM_UP_SEED + case.index * SEED_STRIDE + case.repeat,
    )
    await run_closed_loop(target.client, make_workload(spec), number, options.sampling)


async def _run_baseline(
    case: Case,
    requests: Sequence[WorkRequest],
    baseline: TransformersBaseline,
    progress: Progress,
) -> dict[str, Any]:
    """The same requests in static batches of the same size, one after the other."""
    size = case.concurrency or len(requests)
    batches = [requests[at : at + size] for at in range(0, len(requests), size)]
    progress.say(f"transformers generate, {len(batches)} batch(es) of {size}")
    results = [await baseline.run(batch) for batch in batches]
    names = ("seconds", "num_generated_tokens", "num_computed_tokens", "num_padding_tokens")
    sums: dict[str, Any] = {name: sum(result[name] for result in results) for name in names}
    sums["generated_tokens_per_s"] = ratio(sums["num_generated_tokens"], sums["seconds"])
    sums["token_ids"] = [ids for result in results for ids in result["token_ids"]]
    return sums


def _compared(
    run: dict[str, Any], plain: dict[str, Any], observations: Sequence[Observation]
) -> dict[str, Any]:
    ours = run["throughput"]["generated_tokens_per_s"]
    outputs = plain.pop("token_ids")
    plain["ratio"] = ratio(ours, plain["generated_tokens_per_s"])
    plain["num_equal_outputs"] = sum(
        observation.token_ids == ids for observation, ids in zip(observations, outputs, strict=True)
    )
    return plain


def requests_of(case: Case, options: ServeOptions) -> list[WorkRequest]:
    if options.requests:
        return list(options.requests)
    number = options.num_requests
    if number is None:
        number = NUM_ARRIVALS if case.concurrency is None else max(case.concurrency, MIN_REQUESTS)
    seed = options.spec.seed + case.index * SEED_STRIDE + case.repeat
    return make_workload(replace(options.spec, num_requests=number, seed=seed))


def _worker_dtype(target: TargetSpec) -> tuple[str, ...]:
    """What the worker computes in, if its flags say so."""
    args = list(target.worker_args)
    return (args[args.index("--dtype") + 1],) if "--dtype" in args else ()


def _report(
    options: ServeOptions,
    target: Target,
    baseline: TransformersBaseline | None,
    runs: list[dict[str, Any]],
) -> dict[str, Any]:
    machine = machine_facts()
    aim = options.target
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine | {"load_average_after": load_average()},
        "model": target.model,
        "simulated": aim.simulate or None,
        "subject": subject(
            target.model, simulate=aim.simulate, endpoints=aim.endpoints, cores=machine["cores"]
        ),
        "stack": {
            "local": target.stack is not None,
            "worker_args": list(options.target.worker_args),
            "scheduler_args": list(options.target.scheduler_args),
        },
        "workload": load_facts(options.spec, options.requests),
        "transformers": baseline.facts if baseline else None,
        "methods": METHODS,
        "runs": runs,
        "summary": summarize(runs),
    }
