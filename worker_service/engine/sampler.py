"""From logits to token ids: greedy, temperature, top-k, top-p, min-p. Stateless.

The draw of a token is a pure function of its logits, its sampling parameters, and
`uniform(seed, child_index, token_index)`, so that a sequence computed anew draws the same:

    mix = the finalizer of splitmix64; G = 0x9E3779B97F4A7C15; all sums modulo 2**64
    h = mix(mix(mix(seed + G) + child_index + G) + token_index + G)
    u = (h >> 11) * 2**-53                                              in [0, 1)

Probabilities are softmax(logits / temperature) in float32, summed in float64, ordered by
(probability descending, id ascending). Top-k, top-p (over what top-k left) and min-p (against the
likeliest) each keep a beginning of that order; the shortest is kept, and at least one token. The
token drawn is the first whose running sum exceeds u * (sum of those kept).

Knows nothing of models, sequences or blocks.

R rows that sample, V vocabulary, C candidates (the likeliest tokens, or all).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shared.types import SamplingParams
from worker_service.engine.row_draw import draw_row

NUM_CANDIDATES = 256  # a full sort of the vocabulary is dear; most draws end among so many
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How one row samples its next token."""

    sampling: SamplingParams
    token_index: int  # output index of the token to be drawn
    forbidden_ids: tuple[int, ...] = ()  # not to be sampled now


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    token_ids: list[int]
    is_finite: list[bool]  # False: the row's logits hold NaN or infinity, its id means nothing


def sample(logits_RV: Tensor, draws: Sequence[Draw]) -> Sampled:
    """One token a row. The logits are changed where ids are forbidden."""
    if logits_RV.device.type == "cpu":
        return _sample_on_cpu(logits_RV, draws)
    finite_R = logits_RV.sum(-1, dtype=torch.float32).isfinite()
    _forbid(logits_RV, draws)
    ids_R = logits_RV.argmax(-1)
    if drawn := _rows_that_draw(draws):
        index_R = torch.tensor(drawn, dtype=torch.int64, device=logits_RV.device)
        ids_R[index_R] = draw_rows(logits_RV[index_R].float(), [draws[row] for row in drawn])
    ids, finite = torch.stack((ids_R, finite_R.to(torch.int64))).tolist()  # one wait for the device
    return Sampled(token_ids=ids, is_finite=[bool(flag) for flag in finite])


def _sample_on_cpu(logits_RV: Tensor, draws: Sequence[Draw]) -> Sampled:
    """By numpy, whose search for the highest is 10 to 20 times as fast as torch's."""
    logits_RV = logits_RV.float()
    rows_RV = logits_RV.numpy()
    ids_R = rows_RV.argmax(-1)  # NaN counts as the highest
    highest_R = np.take_along_axis(rows_RV, ids_R[:, None], -1)[:, 0]
    finite_R = np.isfinite(highest_R) & np.isfinite(rows_RV.min(-1))
    if _forbid(logits_RV, draws):
        ids_R = rows_RV.argmax(-1)
    if drawn := _rows_that_draw(draws):
        numbers = _uniform_of([draws[row] for row in drawn])
        for row, number in zip(drawn, numbers.tolist(), strict=True):
            ids_R[row] = draw_row(rows_RV[row], draws[row].sampling, number)
    return Sampled(token_ids=ids_R.tolist(), is_finite=finite_R.tolist())


def _rows_that_draw(draws: Sequence[Draw]) -> list[int]:
    return [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]


def uniform(
    seeds: Sequence[int], child_indices: Sequence[int], token_indices: Sequence[int]
) -> np.ndarray:
    """Float64 in [0, 1), by the formula above."""
    hashed = np.zeros(len(seeds), dtype=np.uint64)
    for part in (seeds, child_indices, token_indices):
        hashed = _mix(hashed + np.array(part, dtype=np.uint64) + _GOLDEN)
    numbers: np.ndarray = (hashed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def _mix(number: np.ndarray) -> np.ndarray:
    number = (number ^ (number >> np.uint64(30))) * _MIX_1
    number = (number ^ (number >> np.uint64(27))) * _MIX_2
    mixed: np.ndarray = number ^ (number >> np.uint64(31))
    return mixed


def _forbid(logits_RV: Tensor, draws: Sequence[Draw]) -> bool:
    """Whether anything was forbidden."""
    vocabulary = logits_RV.shape[-1]
    places = [
        (row, token_id)
        for row, draw in enumerate(draws)
        for token_id in draw.forbidden_ids
        if 0 <= token_id < vocabulary
    ]
    if places:
        index = torch.tensor(places, dtype=torch.int64, device=logits_RV.device)
        logits_RV[index[:, 0], index[:, 1]] = float("-inf")
    return bool(places)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Sampling parameters of the rows as columns [R, 1]: float64, top_k int64."""

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    uniform: Tensor
    vocabulary: int

    def rows(self, index_R: Tensor) -> "_Columns":
        return _Columns(
            self.top_k[index_R],
            self.top_p[index_R],
            self.min_p[index_R],
            self.uniform[index_R],
            self.vocabulary,
        )


def _columns(draws: Sequence[Draw], vocabulary: int, device: torch.device) -> _Columns:
    params = [draw.sampling for draw in draws]
    numbers = _uniform_of(draws)
    floats = np.array([[p.top_p for p in params], [p.min_p for p in params], numbers])
    top_p, min_p, uniform_R = torch.from_numpy(floats).to(device).unsqueeze(-1)
    top_k = torch.tensor([min(p.top_k or vocabulary, vocabulary) for p in params], device=device)
    return _Columns(top_k.unsqueeze(-1), top_p, min_p, uniform_R, vocabulary)


def _uniform_of(draws: Sequence[Draw]) -> np.ndarray:
    return uniform(
        [draw.sampling.seed for draw in draws],
        [draw.sampling.child_index for draw in draws],
        [draw.token_index for draw in draws],
    )


def _probabilities(logits_RV: Tensor, draws: Sequence[Draw]) -> Tensor:
    temperature = [[draw.sampling.temperature] for draw in draws]
    temperature_R1 = torch.tensor(temperature, dtype=torch.float64, device=logits_RV.device)
    # the likeliest logit is 0 first: so a tiny temperature cannot overflow
    shifted_RV = logits_RV - logits_RV.amax(-1, keepdim=True)
    return (shifted_RV / temperature_R1.clamp_min(1e-30).float()).softmax(-1)


def draw_rows(logits_RV: Tensor, draws: Sequence[Draw]) -> Tensor:
    """The ids drawn, by torch alone, for whichever device."""
    vocabulary = logits_RV.shape[-1]
    probs_RV = _probabilities(logits_RV, draws)
    columns = _columns(draws, vocabulary, logits_RV.device)
    if vocabulary <= NUM_CANDIDATES:
        return _draw_from_all(probs_RV, columns)
    ids_R, certain_R = _draw_from_likeliest(probs_RV, columns)
    unsure = torch.nonzero(~certain_R).flatten()
    if len(unsure):
        ids_R[unsure] = _draw_from_all(probs_RV[unsure], columns.rows(unsure))
    return ids_R


def _draw_from_all(probs_RV: Tensor, columns: _Columns) -> Tensor:
    ordered = probs_RV.sort(dim=-1, descending=True, stable=True)
    running_RC = ordered.values.double().cumsum(-1)
    place_R1, _ = _place(ordered.values, running_RC, running_RC[:, -1:], columns)
    return ordered.indices.gather(-1, place_R1).squeeze(-1)


def _draw_from_likeliest(probs_RV: Tensor, columns: _Columns) -> tuple[Tensor, Tensor]:
    """Ids, and where they are certain to be what the whole order would give."""
    likeliest = probs_RV.topk(NUM_CANDIDATES, dim=-1)
    by_id = likeliest.indices.sort(dim=-1)
    values_RC = likeliest.values.gather(-1, by_id.indices)
    ordered = values_RC.sort(dim=-1, descending=True, stable=True)
    ids_RC = by_id.values.gather(-1, ordered.indices)
    running_RC = ordered.values.double().cumsum(-1)
    total_R1 = probs_RV.sum(-1, keepdim=True, dtype=torch.float64)
    place_R1, cut_is_certain_R1 = _place(ordered.values, running_RC, total_R1, columns)
    # equals of the last candidate may have been left out, so a draw among them proves nothing
    drawn_prob_R1 = ordered.values.gather(-1, place_R1)
    certain_R1 = cut_is_certain_R1 & (drawn_prob_R1 > ordered.values[:, -1:])
    return ids_RC.gather(-1, place_R1).squeeze(-1), certain_R1.squeeze(-1)


def _place(
    probs_RC: Tensor, running_RC: Tensor, total_R1: Tensor, columns: _Columns
) -> tuple[Tensor, Tensor]:
    """Which candidate is drawn, and whether these candidates suffice to say so."""
    num_candidates = probs_RC.shape[-1]
    num_kept_R1, is_known_R1 = _num_kept(probs_RC, running_RC, total_R1, columns)
    ends_here_R1 = num_kept_R1 <= num_candidates
    last_R1 = num_kept_R1.clamp_max(num_candidates) - 1
    mass_R1 = torch.where(ends_here_R1, running_RC.gather(-1, last_R1), total_R1)
    place_R1 = (running_RC <= columns.uniform * mass_R1).sum(-1, keepdim=True)
    # nothing cut: the mass is the total, so the draw is certain wherever it falls inside
    uncut_R1 = (columns.top_p >= 1) & (columns.min_p <= 0) & (place_R1 <= last_R1)
    return torch.minimum(place_R1, last_R1), is_known_R1 & (ends_here_R1 | uncut_R1)


def _num_kept(
    probs_RC: Tensor, running_RC: Tensor, total_R1: Tensor, columns: _Columns
) -> tuple[Tensor, Tensor]:
    """Length of the beginning that is kept, more than C where it ends elsewhere; and if known.

    It is unknown where top-k ends beyond the candidates: what it keeps cannot be summed.
    """
    num_candidates = probs_RC.shape[-1]
    has_k_R1 = columns.top_k <= num_candidates
    last_k_R1 = columns.top_k.clamp_max(num_candidates) - 1
    mass_k_R1 = torch.where(has_k_R1, running_RC.gather(-1, last_k_R1), total_R1)
    num_p_R1 = 1 + (running_RC < columns.top_p * mass_k_R1).sum(-1, keepdim=True)
    floor_R1 = columns.min_p * probs_RC[:, :1].double()
    num_m_R1 = (probs_RC.double() >= floor_R1).sum(-1, keepdim=True).clamp_min(1)
    num_m_R1 += (num_m_R1 == num_candidates).to(torch.int64)  # who knows how many more
    vocabulary = torch.full_like(columns.top_k, columns.vocabulary)
    num_p_R1 = torch.where(columns.top_p < 1, num_p_R1, vocabulary)
    num_m_R1 = torch.where(columns.min_p > 0, num_m_R1, vocabulary)
    num_kept_R1 = torch.minimum(torch.minimum(columns.top_k, num_p_R1), num_m_R1)
    return num_kept_R1.clamp_max(columns.vocabulary), has_k_R1 | (columns.top_k == vocabulary)
