"""The bench from start to table: installs, measures what is missing, within its minutes."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers.code import code_version
from bench.peers.measure import Running, measure
from bench.peers.plan import OURS, Measurement, arrival_rate, measurements
from bench.peers.roofline import Machine, ModelSize, limit_tokens_per_s, measure_machine
from bench.peers.rows import MACHINE, Key, Row, append_row, read_rows
from bench.peers.system import System, Unavailable
from bench.peers.workloads import Workload, requests_of
from tokentide.bench.serve import Progress
from tokentide.bench.statistics import median
from tokentide.bench.target import machine_facts, vocabulary_of
from tokentide.bench.workload import DEFAULT_VOCABULARY

MAX_TRIES = 2  # of one measurement in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    model_dir: Path
    rows_path: Path
    log_dir: Path
    systems: Sequence[System]
    workloads: Sequence[Workload]
    repeat: int = 3
    minutes: float = 90.0
    step_tokens: Mapping[str, int] = field(default_factory=dict)
    swept: Sequence[str] = ()
    rate: float | None = None
    is_quiet_only: bool = False  # rows that others disturbed do not count as finished


@dataclass(slots=True)
class Outcome:
    rows: dict[Key, Row]
    limits: dict[str, float] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)  # system: why
    num_missing: int = 0
    machine: Machine | None = None
    code: str = ""  # ours, as it is now


async def run(options: Options, progress: Progress) -> Outcome:
    cpu = str(machine_facts()["cpu"])
    outcome = Outcome(rows=read_rows(options.rows_path, cpu), code=code_version())
    systems = await prepare(options, outcome, progress.say)
    deadline_s = time.monotonic() + options.minutes * 60
    wanted = list(
        measurements(
            systems,
            options.workloads,
            options.repeat,
            chosen=options.step_tokens,
            swept=options.swept,
        )
    )
    work = Work(options, outcome, progress, cpu)
    try:
        await work.measure_all(wanted, deadline_s)
    finally:
        await work.running.close_all()
    outcome.num_missing = sum(not work.is_done(each) for each in wanted)
    _add_limits(options, outcome)
    return outcome


async def prepare(
    options: Options, outcome: Outcome, report: Callable[[str], None]
) -> list[System]:
    options.log_dir.mkdir(parents=True, exist_ok=True)
    ready = []
    for system in options.systems:
        try:
            await asyncio.to_thread(system.prepare, options.model_dir, report)
            ready.append(system)
        except Unavailable as error:
            outcome.unavailable[system.name] = str(error)
            report(f"{system.name} is left out: {error}")
    return ready


class Work:
    """Measures what has no row yet. A system that fails leaves a row that says why."""

    def __init__(self, options: Options, outcome: Outcome, progress: Progress, cpu: str) -> None:
        self.running = Running(options.log_dir)
        self._options = options
        self._outcome = outcome
        self._progress = progress
        self._cpu = cpu
        self._vocabulary = vocabulary_of(options.model_dir) or DEFAULT_VOCABULARY

    def is_done(self, measurement: Measurement) -> bool:
        row = self._outcome.rows.get(measurement.key)
        if row is None or not row.is_good:
            return False
        return not (self._options.is_quiet_only and row.is_disturbed)

    async def measure_all(self, wanted: Sequence[Measurement], deadline_s: float) -> None:
        for number, measurement in enumerate(wanted):
            if self.is_done(measurement):
                continue
            if time.monotonic() > deadline_s:
                self._progress.say(f"out of minutes at {number} of {len(wanted)}; resume later")
                return
            await self._measure_machine(measurement.repeat)
            for _ in range(MAX_TRIES):
                await self._measure_one(measurement, f"{number + 1}/{len(wanted)}")
                if self.is_done(measurement):
                    break
                # its prefix cache knows these prompts now
                await self.running.close(measurement.system.name)

    async def _measure_one(self, measurement: Measurement, place: str) -> None:
        rate = None
        if measurement.workload.has_arrivals:
            rate = self._options.rate or arrival_rate(self._outcome.rows)
            if rate is None:
                self._progress.say("no peer's capacity is known: no arrivals (give --rate)")
                return
        figures: dict[str, Any] = {}
        error = ""
        try:
            figures = await measure(
                measurement,
                self.running,
                vocabulary=self._vocabulary,
                rate=rate,
                progress=self._progress,
            )
        except Exception as failure:  # whatever a peer does wrong, the others go on
            error = _reason(failure)
        self._keep(measurement.key, figures, error)
        self._progress.say(f"{place} {_told(measurement, figures, error)}")

    async def _measure_machine(self, repeat: int) -> None:
        """Once a repeat, while everything else is idle."""
        key = Key(MACHINE, MACHINE, 0, repeat)
        if key not in self._outcome.rows:
            self._progress.say("measuring memory and matrix products")
            machine = await asyncio.to_thread(measure_machine)
            figures = {
                "read_bytes_per_s": machine.read_bytes_per_s,
                "gemm_flops_per_s": machine.gemm_flops_per_s,
            }
            self._keep(key, figures, "")

    def _keep(self, key: Key, figures: dict[str, Any], error: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        code = self._outcome.code if key.system == OURS else ""
        row = Row(key=key, cpu=self._cpu, at=at, figures=figures, error=error, code=code)
        self._outcome.rows[key] = row
        append_row(self._options.rows_path, row)


def _add_limits(options: Options, outcome: Outcome) -> None:
    found = [row.figures for row in outcome.rows.values() if row.key.system == MACHINE]
    if not found:
        return
    outcome.machine = Machine(
        read_bytes_per_s=median(row["read_bytes_per_s"] for row in found),
        gemm_flops_per_s=median(row["gemm_flops_per_s"] for row in found),
    )
    model = ModelSize.of(options.model_dir)
    vocabulary = vocabulary_of(options.model_dir) or DEFAULT_VOCABULARY
    for workload in options.workloads:
        if not (workload.is_long_prompt or workload.has_arrivals):
            requests = requests_of(workload, repeat=0, vocabulary=vocabulary)
            outcome.limits[workload.name] = limit_tokens_per_s(
                requests, model, outcome.machine, workload.spec.shared_prefix
            )


def _told(measurement: Measurement, figures: Mapping[str, Any], error: str) -> str:
    label = f"{measurement.workload.name}, {measurement.system.name}"
    label += f", {measurement.step_tokens} tokens a step, repeat {measurement.repeat + 1}"
    if error:
        return f"{label}: failed: {error}"
    others = f"others used {100 * figures['foreign_share']:.0f} % of the cores"
    if "ttft_s" in figures:
        gap, ttft = figures["worst_gap_s"], figures["ttft_s"]
        return f"{label}: worst gap {gap:.2f} s, TTFT {ttft:.1f} s, {others}"
    speed, duration_s = figures["tokens_per_s"], figures["duration_s"]
    return f"{label}: {speed:.1f} tokens/s in {duration_s:.0f} s, {others}"


def _reason(failure: BaseException) -> str:
    """The first cause in one line."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    text = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {text[0][:300] if text else 'no message'}"
