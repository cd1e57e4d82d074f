"""Plans that the worker has and has not answered. Knows nothing of what their results mean."""

from collections import deque
from dataclasses import dataclass

from scheduler_service.planning.live_table import LiveTable
from shared.types import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    step_id: int
    chunks: tuple[Chunk, ...]


class PlansInFlight:
    def __init__(self) -> None:
        self._steps: deque[PlannedStep] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step_id: int, chunks: tuple[Chunk, ...]) -> None:
        self._steps.append(PlannedStep(step_id=step_id, chunks=chunks))

    def end(self, step_id: int) -> None:
        """Its result is here. Results come in the order of their plans."""
        step = self._steps.popleft()
        assert step.step_id == step_id, f"step {step_id}, expected {step.step_id}"

    def predict(self, live: LiveTable, block_size: int) -> None:
        """Anew, from what the last result has made of the sequences."""
        for sequence in live:
            sequence.restart_prediction(block_size)
        for step in self._steps:
            for chunk in step.chunks:
                sequence_or_none = live.by_handle(chunk.handle)
                if sequence_or_none is not None:
                    sequence_or_none.predict(chunk.max_num_tokens, block_size)
