"""The draw of one row, in numpy: the sampler's way on a CPU.

There a sort of the vocabulary, or even torch's search for the likeliest 256 of it, costs more than
the rest of a step for many rows. But all tokens above some probability are found in one pass, they
are few, and they are a beginning of the order: most draws end among them. The rule is that of
`sampler.py`; weights are its probabilities times the likeliest's weight, 1: nothing asks for more.

V vocabulary, C candidates (all tokens at least as likely as some bound).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shared.types import SamplingParams

_BOUND, _LOW_BOUND = 1e-3, 1e-5  # weights of candidates, the likeliest's being 1


@dataclass(frozen=True, slots=True)
class _Candidates:
    """A beginning of the order: weight descending, id ascending."""

    ids_C: np.ndarray
    weights_C: np.ndarray  # float32
    running_C: np.ndarray  # float64: sums of weights up to and with each
    total: float  # of the whole vocabulary
    vocabulary: int


def draw_row(logits_V: np.ndarray, sampling: SamplingParams, number: float) -> int:
    """The id drawn from these logits (float32) by a number in [0, 1); 0 if there are NaN in them."""
    with np.errstate(all="ignore"):  # a tiny temperature overflows, to a weight of 0
        temperature = np.float32(max(sampling.temperature, 1e-30))
        weights_V = np.exp((logits_V - logits_V.max()) / temperature)
    total = float(weights_V.sum(dtype=np.float64))
    if not np.isfinite(total):
        return 0
    for bound in _bounds(weights_V, sampling.top_k):
        candidates = _ordered(weights_V, np.flatnonzero(weights_V >= np.float32(bound)), total)
        drawn = _draw(candidates, sampling, number)
        if drawn is not None:
            return drawn
    raise AssertionError("the whole order was looked at")


def _bounds(weights_V: np.ndarray, top_k: int) -> Iterator[float]:
    """Each finds more candidates than the one before, the last finds all."""
    yield _BOUND
    if 0 < top_k < len(weights_V):
        yield float(np.partition(weights_V, -top_k)[-top_k])
    yield _LOW_BOUND
    yield 0.0


def _ordered(weights_V: np.ndarray, ids_C: np.ndarray, total: float) -> _Candidates:
    weights_C = weights_V[ids_C]
    order_C = np.argsort(-weights_C, kind="stable")
    weights_C = weights_C[order_C]
    running_C = weights_C.cumsum(dtype=np.float64)
    if len(ids_C) == len(weights_V):
        total = float(running_C[-1])
    return _Candidates(ids_C[order_C], weights_C, running_C, total, len(weights_V))


def _draw(candidates: _Candidates, sampling: SamplingParams, number: float) -> int | None:
    """The id drawn, or None where these candidates do not suffice to say."""
    num_candidates = len(candidates.ids_C)
    num_kept = _num_kept(candidates, sampling)
    if num_kept is None:
        return None
    if num_kept <= num_candidates:
        mass, last = float(candidates.running_C[num_kept - 1]), num_kept - 1
    elif sampling.top_p >= 1 and sampling.min_p <= 0:  # nothing is cut: all the mass is drawn from
        mass, last = candidates.total, num_candidates
    else:
        return None
    place = min(int(candidates.running_C.searchsorted(number * mass, side="right")), last)
    return int(candidates.ids_C[place]) if place < num_candidates else None


def _num_kept(candidates: _Candidates, sampling: SamplingParams) -> int | None:
    """Length of the beginning that is kept. A number beyond C: it ends there or later; None: unknown.

    It is unknown where top-k ends beyond the candidates: what it keeps cannot be summed.
    """
    num_candidates, vocabulary = len(candidates.ids_C), candidates.vocabulary
    kept = min(sampling.top_k or vocabulary, vocabulary)
    if num_candidates < kept < vocabulary:
        return None
    mass = float(candidates.running_C[kept - 1]) if kept <= num_candidates else candidates.total
    if sampling.top_p < 1:
        kept = min(kept, 1 + int(candidates.running_C.searchsorted(sampling.top_p * mass)))
    if sampling.min_p > 0:
        floor = sampling.min_p * float(candidates.weights_C[0])
        num_likely = max(1, int(np.count_nonzero(candidates.weights_C.astype(np.float64) >= floor)))
        may_go_on = num_likely == num_candidates < vocabulary
        kept = min(kept, num_likely + may_go_on)
    return kept
