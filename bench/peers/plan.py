"""Which measurements, in which order. Pure.

Repeat by repeat, workload by workload, systems in turn, so that a slow hour of the machine meets all of
them; who goes first rotates. What only runs a quarter, once, comes last.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.rows import Key, Row
from bench.peers.system import System
from bench.peers.workloads import CAPACITY_WORKLOAD, Workload

ARRIVAL_SHARE = 0.7  # of the best peer's capacity
OURS = "ours"


@dataclass(frozen=True, slots=True)
class Measurement:
    workload: Workload
    system: System
    step_tokens: int
    repeat: int

    @property
    def key(self) -> Key:
        return Key(self.workload.name, self.system.name, self.step_tokens, self.repeat)


def measurements(
    systems: Sequence[System],
    workloads: Sequence[Workload],
    repeat: int,
    *,
    chosen: Mapping[str, int],
    swept: Collection[str] = (),
) -> Iterator[Measurement]:
    """`chosen`: step tokens by system, instead of its default; `swept`: workloads to sweep besides."""
    full = [system for system in systems if not system.is_quarter]
    for number in range(repeat):
        for workload in workloads:
            is_swept = workload.is_swept or workload.name in swept
            for system in _rotated(full, number):
                for step_tokens in _settings(system, chosen, is_swept=is_swept):
                    yield Measurement(workload, system, step_tokens, number)
    yield from _quarters(systems, workloads)


def _quarters(systems: Sequence[System], workloads: Sequence[Workload]) -> Iterator[Measurement]:
    """Neither arrivals nor the long prompt: the slow are overloaded by them."""
    for workload in workloads:
        if not (workload.is_long_prompt or workload.has_arrivals):
            for system in systems:
                if system.is_quarter:
                    yield Measurement(workload, system, system.default_step_tokens, 0)


def arrival_rate(rows: Mapping[Key, Row]) -> float | None:
    """Requests/s: that of earlier arrivals, so that resumed rows compare; else from the capacity."""
    earlier = [row.figures["rate"] for row in rows.values() if row.figures.get("rate")]
    if earlier:
        return float(earlier[0])
    capacities = [
        float(row.figures["requests_per_s"])
        for row in rows.values()
        if row.key.workload == CAPACITY_WORKLOAD
        and row.is_good
        and row.key.system != OURS
        and not row.figures.get("is_quarter")
    ]
    return ARRIVAL_SHARE * max(capacities) if capacities else None


def _rotated(systems: Sequence[System], number: int) -> Sequence[System]:
    at = number % max(1, len(systems))
    return [*systems[at:], *systems[:at]]


def _settings(system: System, chosen: Mapping[str, int], *, is_swept: bool) -> tuple[int, ...]:
    if is_swept and system.swept_step_tokens:
        return system.swept_step_tokens
    return (chosen.get(system.name, system.default_step_tokens),)
