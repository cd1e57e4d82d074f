"""What an operator reads of a running service: values, and the sums derived from them.

Knows nothing of grpc, protobuf or terminals.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from shared.types import BlockCounts, StepTimings, WorkerStats


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One request's chunk in a step."""

    request_id: str
    num_tokens: int
    is_decode: bool
    is_admitted: bool = False  # its first chunk on this worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that a worker has executed."""

    worker: str
    step_id: int
    scheduled: tuple[Scheduled, ...]
    blocks: BlockCounts  # after the step
    num_waiting: int
    num_running: int
    timings: StepTimings = field(default_factory=StepTimings)
    num_sampled: int = 0
    preempted: tuple[str, ...] = ()
    strategy: str = ""

    @property
    def chunks(self) -> tuple[Scheduled, ...]:
        return tuple(s for s in self.scheduled if not s.is_decode)

    @property
    def decodes(self) -> tuple[Scheduled, ...]:
        return tuple(s for s in self.scheduled if s.is_decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the steps that the asked replicas have driven."""

    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_cached_tokens: int = 0
    num_sampled_tokens: int = 0
    num_preemptions: int = 0
    busy_ns: int = 0
    bubble_ns: int = 0
    plan_ns: int = 0
    commit_ns: int = 0
    num_commits: int = 0
    batch_size_ns: float = 0.0
    held_blocks_ns: float = 0.0
    # wasted work, by cause
    num_held_sequence_steps: int = 0  # an ended member kept its place in a batch for a step
    num_tokens_after_cancel: int = 0
    num_expired_prompt_tokens: int = 0
    num_replayed_tokens: int = 0  # computed again because their worker died

    def since(self, earlier: "Totals") -> "Totals":
        return Totals(
            **{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        )

    @property
    def mean_batch_size(self) -> float:
        """Sequences in a step, weighted by the step's time."""
        return self.batch_size_ns / self.busy_ns if self.busy_ns else 0.0

    @property
    def bubble_share(self) -> float:
        """Share of the time with work in which the worker was idle between steps."""
        with_work_ns = self.busy_ns + self.bubble_ns
        return self.bubble_ns / with_work_ns if with_work_ns else 0.0


def sum_of(totals: Iterable[Totals]) -> Totals:
    each = list(totals)
    return Totals(**{f.name: sum(getattr(t, f.name) for t in each) for f in fields(Totals)})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReading:
    name: str
    address: str
    driven_here: bool
    stats: WorkerStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """One reading of the queue and of every worker that one replica sees."""

    replica_id: str
    model: str
    num_waiting: int  # whole pool
    num_running: int  # whole pool
    num_waiting_tokens: int
    num_streams: int  # of this replica
    num_replicas: int
    strategy: str
    serving: bool
    totals: Totals
    workers: tuple[WorkerReading, ...] = ()


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    rank = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(int(rank), 1) - 1]
