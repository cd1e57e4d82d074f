"""Rows to medians, ratios and the Pareto front. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from bench.peers.plan import OURS
from bench.peers.rows import Row, of_workload
from tokentide.bench.statistics import median

HELD_BACK = -1  # a token whose id a peer did not tell


@dataclass(frozen=True, slots=True)
class Metric:
    workload: str
    label: str
    path: tuple[str, ...]
    factor: float = 1.0
    decimals: int = 1
    is_less_better: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One system's value: the median, least and greatest of its best setting."""

    median: float
    low: float
    high: float
    num_runs: int
    step_tokens: int
    is_quarter: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A setting on the plane of the long prompt: both coordinates are better when less."""

    system: str
    step_tokens: int
    worst_gap_s: float
    ttft_s: float


def cells(rows: Iterable[Row], metric: Metric) -> dict[str, Cell]:
    """By system: the setting with the best median."""
    best: dict[str, Cell] = {}
    for (system, step_tokens), several in _by_setting(rows, metric.workload).items():
        values = [value for row in several if (value := _value(row, metric)) is not None]
        if not values:
            continue
        cell = Cell(
            median(values),
            min(values),
            max(values),
            len(values),
            step_tokens,
            is_quarter=any(row.figures.get("is_quarter") for row in several),
        )
        if system not in best or _is_better(cell.median, best[system].median, metric):
            best[system] = cell
    return best


def best_peer(found: Mapping[str, Cell], metric: Metric) -> str | None:
    """Not ours, and not one that ran a quarter only."""
    peers = [name for name, cell in found.items() if name != OURS and not cell.is_quarter]
    if not peers:
        return None
    pick = min if metric.is_less_better else max
    return pick(peers, key=lambda name: found[name].median)


def ratio_to_best(found: Mapping[str, Cell], metric: Metric) -> float | None:
    """Above 1: ours is better."""
    peer = best_peer(found, metric)
    if peer is None or OURS not in found or not found[OURS].median or not found[peer].median:
        return None
    ratio = found[OURS].median / found[peer].median
    return 1 / ratio if metric.is_less_better else ratio


def points(rows: Iterable[Row], workload: str) -> list[Point]:
    """Medians by system and setting."""
    return [
        Point(
            system,
            step_tokens,
            median(row.figures["worst_gap_s"] for row in several),
            median(row.figures["ttft_s"] for row in several),
        )
        for (system, step_tokens), several in sorted(_by_setting(rows, workload).items())
    ]


def dominates(one: Point, other: Point) -> bool:
    """At least as good in both, better in one."""
    gap, ttft = one.worst_gap_s - other.worst_gap_s, one.ttft_s - other.ttft_s
    return gap <= 0 and ttft <= 0 and (gap < 0 or ttft < 0)


def front(found: Sequence[Point]) -> list[Point]:
    return [point for point in found if not any(dominates(other, point) for other in found)]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one run with ours: first output tokens before the first other one."""

    num_equal: int
    num_compared: int

    @property
    def is_whole(self) -> bool:
        return self.num_equal == self.num_compared


def agreement(rows: Iterable[Row], system: str) -> list[Agreement]:
    """Of every run, over all workloads and repeats of both; none without one of ours."""
    ours: dict[tuple[str, int], list[int]] = {}
    theirs: list[tuple[tuple[str, int], list[int]]] = []
    for row in rows:
        tokens = row.figures.get("first_tokens")
        place = (row.key.workload, row.key.repeat)
        if tokens and row.key.system == OURS:
            ours[place] = tokens
        if tokens and row.key.system == system:
            theirs.append((place, tokens))
    return [
        Agreement(_num_equal(tokens, ours[place]), min(len(tokens), len(ours[place])))
        for place, tokens in theirs
        if place in ours
    ]


def _num_equal(some: Sequence[int], others: Sequence[int]) -> int:
    pairs = zip(some, others, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1] or HELD_BACK in pair, pairs)))


def _by_setting(rows: Iterable[Row], workload: str) -> dict[tuple[str, int], list[Row]]:
    settings: dict[tuple[str, int], list[Row]] = {}
    for row in of_workload(rows, workload):
        if row.is_good:
            settings.setdefault((row.key.system, row.key.step_tokens), []).append(row)
    return settings


def _value(row: Row, metric: Metric) -> float | None:
    value: Any = row.figures
    for part in metric.path:
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else float(value) * metric.factor


def _is_better(value: float, than: float, metric: Metric) -> bool:
    return value < than if metric.is_less_better else value > than
