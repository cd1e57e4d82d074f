"""A chunk as it will run. Knows nothing of tensors."""

from dataclasses import dataclass

from worker_service.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens [start, start + num_tokens) of the sequence."""

    sequence: Sequence
    num_tokens: int

    @property
    def start(self) -> int:
        return self.sequence.num_computed_tokens

    @property
    def samples(self) -> bool:
        return self.num_tokens == self.sequence.num_pending_tokens
