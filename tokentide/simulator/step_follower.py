"""What was in each step of a running worker, from its records and from what was asked of it.

A record says how many tokens each request was to get at most; where its chunk began follows from
all records before. Knows nothing of grpc.
"""

from dataclasses import dataclass

from shared.cost_model import StepShape
from tokentide.commands.readings import Scheduled, Step

Chunk = tuple[int, int, bool]  # first position, tokens, whether it samples


@dataclass(slots=True)
class _Followed:
    num_prompt_tokens: int
    max_tokens: int
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    has_begun: bool = False


class StepFollower:
    """Requests are told before they are sent; then every step is shown, in order."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}
        self.num_left_out = 0  # steps that held something unknown

    def expect(self, request_id: str, num_prompt_tokens: int, max_tokens: int) -> None:
        """It must end by length, and its prompt must share no beginning with another."""
        self._followed[request_id] = _Followed(num_prompt_tokens, max_tokens)

    def forget(self, request_id: str) -> None:
        self._followed.pop(request_id, None)

    def awaits_first_token(self, request_id: str) -> bool:
        """Asked before a step is shown: may the step be part of its way to the first token?"""
        followed = self._followed.get(request_id)
        return followed is not None and not followed.num_output_tokens

    def shape(self, step: Step) -> StepShape | None:
        """None: the step held what is not known, or was preempted and may be in the prefix cache."""
        chunks: list[Chunk] = []
        is_known = True
        for scheduled in step.scheduled:
            followed = self._follow(scheduled)
            if followed is None:
                is_known = False
            elif chunk := _advance(followed, scheduled.num_tokens):
                chunks.append(chunk)
        shape = StepShape.of_chunks(chunks)
        if is_known and shape.num_samples == step.num_sampled:
            return shape
        self.num_left_out += 1
        for scheduled in step.scheduled:
            self.forget(scheduled.request_id)
        return None

    def _follow(self, scheduled: Scheduled) -> _Followed | None:
        followed = self._followed.get(scheduled.request_id)
        if followed is None:
            return None
        if followed.has_begun == scheduled.is_admitted:
            # Preempted and back, or its beginning was missed.
            self.forget(scheduled.request_id)
            return None
        followed.has_begun = True
        return followed


def _advance(followed: _Followed, max_num_tokens: int) -> Chunk | None:
    """As the worker clamps it. None: nothing was pending."""
    if followed.num_output_tokens >= followed.max_tokens:
        return None
    start = followed.num_computed_tokens
    pending = followed.num_prompt_tokens + followed.num_output_tokens - start
    num_tokens = min(max_num_tokens, pending)
    if num_tokens < 1:
        return None
    followed.num_computed_tokens += num_tokens
    samples = num_tokens == pending
    followed.num_output_tokens += samples
    return start, num_tokens, samples
