"""A request of a workload on its way through the simulated service. Times are in nanoseconds."""

import zlib
from dataclasses import dataclass, field

from scheduler_service.planning.live import Admissible
from scheduler_service.planning.snapshot import WaitingRequest
from shared.types import Assignment, SamplingParams, StopRules, TokenIds
from tokentide.bench.load import Observation
from tokentide.bench.workload import MIN_RANDOM_ID, WorkRequest

STOP_ID = (1 << 31) - 1  # the simulated model's end token: no prompt has it
VOCABULARY = 1 << 31  # any id that a recorded workload may have


@dataclass(slots=True, kw_only=True)
class HeldBatch:
    """Members of a static or dynamic batch whose answers are held until the last has ended."""

    num_running: int
    ended: list["SimulatedRequest"] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SimulatedRequest:
    observation: Observation
    rank: int
    prompt_ids: TokenIds
    sampling: SamplingParams
    stop: StopRules
    submitted_ns: int = 0
    num_assignments: int = 0
    batch: HeldBatch | None = None

    @property
    def request_id(self) -> str:
        return self.observation.request_id

    @classmethod
    def of_work(cls, work: WorkRequest, rank: int, due_s: float, seed: int) -> "SimulatedRequest":
        prompt_ids = _ids_of(work.prompt)
        return cls(
            observation=Observation(
                request_id=str(rank),
                due_s=due_s,
                sent_s=due_s,
                num_prompt_tokens=len(prompt_ids),
            ),
            rank=rank,
            prompt_ids=prompt_ids,
            sampling=SamplingParams(seed=seed),
            stop=StopRules(
                max_tokens=work.max_tokens,
                stop_token_ids=() if work.ignore_eos else (STOP_ID,),
            ),
        )

    def waiting(self, now_ms: int) -> WaitingRequest:
        return WaitingRequest(
            request_id=self.request_id,
            num_prompt_tokens=len(self.prompt_ids),
            num_output_tokens=len(self.observation.token_ids),
            max_tokens=self.stop.max_tokens,
            age_ms=now_ms - self.submitted_ns // 1_000_000,
        )

    def admissible(self, *, is_held: bool) -> Admissible:
        """Of a claim: a new assignment each time."""
        self.num_assignments += 1
        return Admissible(
            request_id=self.request_id,
            assignment=Assignment(self.num_assignments, 0),
            prompt_ids=self.prompt_ids,
            log=tuple(self.observation.token_ids),
            sampling=self.sampling,
            stop=self.stop,
            is_held=is_held,
        )


def _ids_of(prompt: str | TokenIds) -> TokenIds:
    """A word of a text counts as one token."""
    if not isinstance(prompt, str):
        return prompt
    return tuple(MIN_RANDOM_ID + zlib.crc32(word.encode()) % 1_000_000 for word in prompt.split())
