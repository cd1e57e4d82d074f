"""`tokentide simulate`: loads of one or several sizes, reported as `bench serve` reports real ones."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from tokentide.bench.load_facts import load_facts
from tokentide.bench.report import METHODS, SCHEMA, figures
from tokentide.bench.serve import Case, Progress, ServeOptions, requests_of
from tokentide.bench.strategies import held_note, holds_answers
from tokentide.bench.summary import summarize
from tokentide.bench.target import load_average, machine_facts
from tokentide.simulator.load import LoadRun, SimulatedLoad, SimulatedSetup

Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """`serve`: the loads, as for a real stack; of its target only the settings of services count."""

    setup: SimulatedSetup
    strategy_label: str
    serve: ServeOptions


async def run_simulate(options: SimulateOptions, progress: Progress) -> dict[str, Any]:
    """The report as it is printed with --json."""
    runs: list[dict[str, Any]] = []
    report: dict[str, Any] = {}
    for case in _cases(options.serve):
        runs.append(await _run_case(case, options, progress))
        report = _report(options, runs)
        options.serve.keep(report)
    return report


def _cases(serve: ServeOptions) -> list[Case]:
    concurrencies: Sequence[int | None] = (None,) if serve.is_open_loop else serve.concurrencies
    return [
        Case(index=index, concurrency=concurrency, repeat=repeat)
        for repeat in range(serve.repeat)
        for index, concurrency in enumerate(concurrencies)
    ]


async def _run_case(case: Case, options: SimulateOptions, progress: Progress) -> dict[str, Any]:
    serve = options.serve
    requests = requests_of(case, serve)
    if serve.save is not None and case.index == case.repeat == 0:
        serve.save(requests)
    progress.start(case.label, len(requests))
    load = SimulatedLoad(
        requests=requests,
        concurrency=case.concurrency,
        cut_s=serve.cut_s,
        seed=serve.sampling.seed,
    )
    run = LoadRun(options.setup, load)
    started_s = perf_counter()
    for _ in run.steps(progress.ended):
        await asyncio.sleep(0)  # a stop signal is heard
    found = figures(run.measured)
    found["service"]["plan_ms_per_step"] = None  # planning takes no time on the virtual clock
    return {
        "case": case.label,
        "concurrency": case.concurrency,
        "repeat": case.repeat,
        "load_average_before": load_average(),
        **found,
        "simulation": {"seconds": perf_counter() - started_s},
    }


def _report(options: SimulateOptions, runs: list[dict[str, Any]]) -> dict[str, Any]:
    setup, serve = options.setup, options.serve
    profile = setup.profile
    strategy = setup.strategy.as_json()
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts() | {"load_average_after": load_average()},
        "model": profile.model,
        "simulated": profile.name,
        "subject": f"{profile.model}, simulated: {profile.name}, {options.strategy_label}",
        "note": held_note([options.strategy_label] if holds_answers(strategy) else []),
        "stack": {
            "simulated": True,
            "profile": profile.as_dict(),
            "num_workers": setup.num_workers,
            "strategy": strategy,
            "limits": asdict(setup.limits()),
            "num_blocks": setup.engine().facts.num_blocks,
        },
        "workload": load_facts(serve.spec, serve.requests),
        "transformers": None,
        "methods": METHODS,
        "runs": runs,
        "summary": summarize(runs),
    }
