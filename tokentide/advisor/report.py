"""What was found, as a report: the recommendation, what it gains, the evidence. Pure arithmetic and texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from shared.profiles import Profile
from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures
from tokentide.advisor.judging import Candidate, Judge, front
from tokentide.advisor.options import AdviseOptions
from tokentide.advisor.strategy_command import short_text, strategy_command
from tokentide.bench.decode_steps import decode_step_ns
from tokentide.bench.outputs import command_line
from tokentide.bench.report import METHODS
from tokentide.bench.statistics import median, ratio
from tokentide.bench.target import load_average, machine_facts

SCHEMA = "tokentide.advise/1"
Report = dict[str, Any]

ADVISE_METHODS = {
    "search": "every strategy over a coarse grid in the offline simulator, then the neighbours of the best "
    "three, in ever smaller steps; answers of batches are streamed",
    "objective: throughput": "most generated tokens/s of those that meet the SLO",
    "objective: goodput": "most requests/s that meet the SLO each: their own time to first token, and "
    "their own gaps at the SLO's percentile",
    "choice": "of those within 1 % of the most (open loop: 3 %), one that no other beats in tokens/s and "
    "times; of these, one that keeps a tenth below each time that is asked; of these, that with the least "
    "times: to first token, between tokens, end to end, each over the least of it",
    "closest": "where nothing meets the SLO: the least time over what is asked, the worse of the two; of "
    "those within 1 % of it, the one that is better in both together",
    "floor": "a step of one sequence without context and the gap after it: no setting has a shorter ITL",
    "front": "no other has more tokens/s, a shorter time to first token and shorter gaps; values within "
    "1 % count as equal",
    "itl": METHODS["itl"],
    "latencies": METHODS["latencies"],
    "percentiles": METHODS["percentiles"],
    "rates": METHODS["arrivals"],
}
COMPARED = ("tokens_per_s", "goodput_per_s", "ttft_s", "itl_s", "end_to_end_s", "end_to_end_p50_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`current` None: the current setting cannot serve the load."""

    current_settings: StrategySettings
    current: Candidate | None
    candidates: Sequence[Candidate]  # the current one among them
    is_complete: bool  # else the time was up


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    candidate: Candidate
    measured: Sequence[Mapping[str, Any]]  # figures of each repeat; none where it was cut off


def advise_report(
    found: Found,
    options: AdviseOptions,
    profile: Profile,
    verified: Sequence[Verified],
    operations: Sequence[str],
) -> Report:
    judge = options.flags.judge
    best = judge.ranked(found.candidates)
    current = _entry(found.current, judge) if found.current else None
    is_stack_ours = not options.serve.target.endpoints
    endpoint = "" if is_stack_ours or not operations else operations[0]
    slo = {"ttft_s": judge.slo.ttft_s, "itl_s": judge.slo.itl_s}
    settings = {k: v for k, v in options.settings(profile).items() if k not in _LONG}
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "machine": machine_facts() | {"load_average_after": load_average()},
        "model": profile.model,
        "simulated": profile.name,
        "subject": f"{profile.model}, simulated: {profile.name}",
        "settings": settings | {"profile": profile.name, "device": profile.device},
        "methods": ADVISE_METHODS,
        "slo": {**slo, "percentile": judge.slo.percentile, "is_asked": judge.slo.is_asked},
        "objective": judge.objective,
        "floor": {"itl_s": (decode_step_ns(profile.costs, 1, 1) + profile.overheads.gap_ns) / 1e9},
        "profile": profile.as_dict(),
        "is_complete": found.is_complete,
        "num_candidates": len(found.candidates),
        "current": current or _unserved(found.current_settings),
        "is_current_asked": options.needs_stack,
        "is_possible": judge.meets(best[0].figures),  # else the recommendation is the closest
        "recommendation": _entry(best[0], judge)
        | {"command": strategy_command(best[0].settings, endpoint)},
        "gain": _gains(best[0].figures, found.current.figures if found.current else None),
        "best_of_each": [_entry(c, judge) for c in _best_of_each(best)],
        "front": [_entry(c, judge) for c in front(found.candidates)],
        "verified": [_verified(v, judge) for v in verified],
        "candidates": [_entry(c, judge) for c in best],
    }


_LONG = ("profile", "workload")  # they have places of their own, or none


def _entry(candidate: Candidate, judge: Judge) -> dict[str, Any]:
    figures = candidate.figures
    return {
        "label": short_text(candidate.settings),
        "settings": json.loads(candidate.key),
        "figures": asdict(figures),
        "meets_slo": judge.slo.excess(figures) <= 1,  # the whole load, at the percentile
        "excess": judge.slo.excess(figures) if figures.num_ok else None,
    }


def _unserved(settings: StrategySettings) -> dict[str, Any]:
    values = json.loads(settings.as_json())
    return {"label": short_text(settings), "settings": values, "figures": None}


def _best_of_each(ranked: Sequence[Candidate]) -> list[Candidate]:
    best: dict[str, Candidate] = {}
    for candidate in ranked:
        best.setdefault(candidate.settings.name, candidate)
    return list(best.values())


def _gains(best: Figures, now: Figures | None) -> dict[str, float | None]:
    """Each figure over the current one."""
    if now is None:
        return {}
    return {name: _ratio(getattr(best, name), getattr(now, name)) for name in COMPARED}


def _ratio(mine: float | None, other: float | None) -> float | None:
    return None if mine is None or not other else ratio(mine, other)


def _verified(verified: Verified, judge: Judge) -> dict[str, Any]:
    """Medians over the repeats, and the prediction over them."""
    measured = {name: _median([row[name] for row in verified.measured]) for name in COMPARED}
    predicted = verified.candidate.figures
    errors = {
        name: None if share is None else share - 1
        for name, value in measured.items()
        for share in [_ratio(getattr(predicted, name), value)]
    }
    met = [judge.slo.excess(Figures(**row)) <= 1 for row in verified.measured]
    return {
        **_entry(verified.candidate, judge),
        "measured": measured,
        "error": errors,
        "num_repeats": len(met),
        "num_repeats_that_meet_slo": sum(met),
        "runs": list(verified.measured),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
