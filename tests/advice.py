"""Figures and candidates for tests of the advisor, with defaults for all that a test does not care about."""

from typing import Any

from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures
from tokentide.advisor.judging import Candidate


def make_figures(tokens_per_s: float = 100.0, **fields: Any) -> Figures:
    values: dict[str, Any] = {
        "requests_per_s": 1.0,
        "goodput_per_s": 1.0,
        "ttft_s": 0.5,
        "itl_s": 0.05,
        "end_to_end_s": 3.0,
        "ttft_p50_s": 0.2,
        "itl_p50_s": 0.02,
        "end_to_end_p50_s": 2.0,
        "duration_s": 10.0,
        "num_ok": 10,
        "num_failed": 0,
        "num_preemptions": 0,
        **fields,
    }
    return Figures(tokens_per_s=tokens_per_s, **values)


def make_candidate(places: int, tokens_per_s: float = 100.0, **fields: Any) -> Candidate:
    """Told apart by their number of places."""
    settings = StrategySettings(max_sequences=places)
    return Candidate(settings=settings, figures=make_figures(tokens_per_s, **fields))


def places_of(candidates: list[Candidate]) -> list[int | None]:
    return [candidate.settings.max_sequences for candidate in candidates]
