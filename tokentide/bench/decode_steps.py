"""Pure decode steps of one batch size: who measures them, and how they are told from the others.

A source may be a live stack, or a model of one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from shared.blocks import blocks_for
from shared.cost_model import CostModel, StepShape
from tokentide.bench.operations_watch import StepSpan

NUM_SETTLING = 2  # the first steps at a batch size are not like the others


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSteps:
    """What a number of steps with this many sequences took; empty if there was none."""

    batch_size: int
    context: int  # tokens of each sequence, about
    steps_ms: tuple[float, ...]


class StepSource(Protocol):
    @property
    def model(self) -> str: ...

    async def measure(self, batch_size: int, context: int, num_steps: int) -> DecodeSteps: ...


class PredictedSteps:
    """A `StepSource` that computes nothing: what a cost model says, as long as the cache has room."""

    def __init__(
        self, model: str, costs: CostModel, *, num_blocks: int | None = None, block_size: int = 16
    ) -> None:
        """Without a number of blocks there is always room."""
        self.model = model
        self._costs = costs
        self._num_blocks = num_blocks
        self._block_size = block_size

    async def measure(self, batch_size: int, context: int, num_steps: int) -> DecodeSteps:
        needed = batch_size * blocks_for(context, self._block_size)
        if self._num_blocks is not None and needed > self._num_blocks:
            num_steps = 0
        step_ms = decode_step_ns(self._costs, batch_size, context) / 1e6
        return DecodeSteps(batch_size=batch_size, context=context, steps_ms=(step_ms,) * num_steps)


def decode_step_ns(costs: CostModel, batch_size: int, context: int) -> int:
    """A step in which `batch_size` sequences of `context` tokens each get one more."""
    return costs.predict_ns(StepShape.of_chunks([(context - 1, 1, True)] * batch_size))


def decode_spans(spans: Iterable[StepSpan], batch_size: int) -> list[StepSpan]:
    """Those with exactly so many sequences, each with its one pending token."""
    return [
        span
        for span in spans
        if len(span.step.scheduled) == batch_size and all(s.is_decode for s in span.step.scheduled)
    ]


def settled_ms(spans: Iterable[StepSpan]) -> tuple[float, ...]:
    """Their own time, without the first ones."""
    return tuple(span.step.timings.total_ns / 1e6 for span in spans)[NUM_SETTLING:]
