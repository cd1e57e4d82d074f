"""An open loop while its requests arrive: what was offered, what was served, what piled up. Pure arithmetic.

A rate over the whole load counts its tail, in which nobody arrives and the system runs empty: the fewer
requests, the more. So here the second half of the arrivals counts; the first half fills the system.
"""

from collections.abc import Sequence
from typing import Any

from tokentide.bench.load import OK, Observation
from tokentide.bench.statistics import ratio

METHOD = (
    "open loop: over the second half of the arrivals, from their middle to the last one; offered is what "
    "arrived then, in requests and in the tokens of their answers. More requests in the system at the last "
    "arrival than at the middle, by more than chance: the backlog grows, and the rate is too high"
)

# label, path in a run's figures, factor, decimals
ROWS: tuple[tuple[str, str, float, int], ...] = (
    ("offered requests/s", "arrivals.offered_requests_per_s", 1, 2),
    ("offered tokens/s", "arrivals.offered_tokens_per_s", 1, 1),
    ("while they arrive: requests/s", "arrivals.requests_per_s", 1, 2),
    ("while they arrive: tokens/s", "arrivals.generated_tokens_per_s", 1, 1),
    ("in the system at the middle", "arrivals.num_in_system_at_middle", 1, 0),
    ("in the system at the last arrival", "arrivals.num_in_system_at_last", 1, 0),
    ("tail after the last arrival, s", "arrivals.tail_s", 1, 1),
)
TOKENS_PER_S = "arrivals.generated_tokens_per_s"
NOTE = (
    "tokens/s and requests/s count the tail; 'while they arrive': the second half of the arrivals; "
    "a system that fills up meanwhile does not keep up"
)


def window_of(observations: Sequence[Observation], started_s: float) -> tuple[float, float] | None:
    """From the middle of the arrivals to the last one, (start, end]. None: they all came at once."""
    last_s = max((o.due_s for o in observations), default=started_s)
    return ((started_s + last_s) / 2, last_s) if last_s > started_s else None


def arrival_figures(
    observations: Sequence[Observation], started_s: float
) -> dict[str, float | int | None] | None:
    window = window_of(observations, started_s)
    if window is None:
        return None
    middle_s, last_s = window
    length_s = last_s - middle_s

    def is_inside(at_s: float) -> bool:
        return middle_s < at_s <= last_s

    came = [o for o in observations if is_inside(o.due_s)]
    arrivals: list[tuple[float, int]] = [a for o in observations for a in o.arrivals]
    num_generated = sum(num_tokens for at_s, num_tokens in arrivals if is_inside(at_s))
    num_ended = sum(o.status == OK and is_inside(o.ended_s) for o in observations)
    num_offered_tokens = sum(len(o.token_ids) for o in came)
    return {
        "window_s": length_s,
        "offered_requests_per_s": ratio(len(came), length_s),
        "offered_tokens_per_s": ratio(num_offered_tokens, length_s),
        "requests_per_s": ratio(num_ended, length_s),
        "generated_tokens_per_s": ratio(num_generated, length_s),
        "num_in_system_at_middle": _num_in_system(observations, middle_s),
        "num_in_system_at_last": _num_in_system(observations, last_s),
        "tail_s": max(o.ended_s for o in observations) - last_s,
    }


def open_loop_note(runs: Sequence[dict[str, Any]]) -> str:
    """Empty where no requests arrived by themselves."""
    return NOTE if any(run.get("arrivals") for run in runs) else ""


def _num_in_system(observations: Sequence[Observation], at_s: float) -> int:
    return sum(o.due_s <= at_s < o.ended_s for o in observations)
