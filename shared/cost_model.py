"""How long a step takes, as a function of what is in it.

A step reads all weights once, whatever it computes: so the first `free_tokens` tokens ride along
free (on a roofline: until computing takes longer than reading), and every token after them costs.
Attention adds what it reads of the cache and what it computes. Pure arithmetic; knows nothing of
clocks, workers or plans. Fitting is `shared.cost_fit`'s.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

from shared.checked_values import mapping, number

MAX_COST = 1e30  # beyond all that any clock measures, and no sum over a step overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What a step computes, in numbers. `num_tokens` 0: a step that only releases."""

    num_tokens: int  # computed
    num_sequences: int
    num_samples: int  # sequences that get a new token: the last layer runs for these alone
    num_context_tokens: int  # cache positions that a sequence's chunk reads, summed over sequences
    num_attended: int  # the same summed over computed tokens: pairs of a query and a key

    @classmethod
    def of_chunks(cls, chunks: Iterable[tuple[int, int, bool]]) -> Self:
        """Of (first position, tokens, whether it samples) for each sequence in the step."""
        num_tokens = num_sequences = num_samples = num_context = num_attended = 0
        for start, size, samples in chunks:
            num_tokens += size
            num_sequences += 1
            num_samples += samples
            num_context += start + size
            num_attended += start * size + size * (size + 1) // 2
        return cls(
            num_tokens=num_tokens,
            num_sequences=num_sequences,
            num_samples=num_samples,
            num_context_tokens=num_context,
            num_attended=num_attended,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Step time in nanoseconds: a sum of costs, none negative."""

    base_ns: float  # every step: launching kernels, reading the weights
    free_tokens: float = 0.0  # tokens whose computing is hidden behind reading the weights
    per_token_ns: float = 0.0  # of every further token
    per_sequence_ns: float = 0.0
    per_sample_ns: float = 0.0
    per_context_ns: float = 0.0  # of every cache position read, once a sequence
    per_attended_ns: float = 0.0  # of every pair of a query and a key

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            number(name, getattr(self, name), 0, MAX_COST)

    def predict_ns(self, shape: StepShape) -> int:
        if not shape.num_tokens:
            return 0
        return round(
            self.base_ns
            + self.per_token_ns * max(0.0, shape.num_tokens - self.free_tokens)
            + self.per_sequence_ns * shape.num_sequences
            + self.per_sample_ns * shape.num_samples
            + self.per_context_ns * shape.num_context_tokens
            + self.per_attended_ns * shape.num_attended
        )

    def as_dict(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises ValueError: unknown names, missing ones, numbers that cannot be."""
        mapping("a cost model", values, frozenset(f.name for f in fields(cls)))
        if "base_ns" not in values:
            raise ValueError("a cost model needs base_ns")
        return cls(**values)
