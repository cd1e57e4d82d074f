"""Values around a driver: what it is given, its settings and sums, the note it keeps of each step,
and how the store's values become the planner's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler_service.planning.admission import capacity
from scheduler_service.planning.live import Admissible
from scheduler_service.planning.outcome import TokenRow
from scheduler_service.planning.results import StepOutcome, TextStopFinder
from scheduler_service.planning.snapshot import Limits, WaitingRequest
from scheduler_service.request_spec import RequestSpec
from scheduler_service.step_notes import StepNote
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import CommitRow, QueueEntry, RunningRecord
from shared.link import Link
from shared.strategy import StrategySettings
from shared.types import (
    DriverMessage,
    StepResult,
    WorkerDescription,
    WorkerMessage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    max_plans_in_flight: int = 2  # running and waiting at the worker together
    max_uncommitted_steps: int = 8
    heartbeat_s: float = 0.5
    worker_silence_s: float = 2.0  # a worker that sends nothing for so long is lost
    poll_s: float = 0.25
    store_retry_s: float = 0.1
    max_store_retry_s: float = 1.0


WorkerLink = Link[DriverMessage, WorkerMessage]


class TextStops(Protocol):
    """Finds stop strings in the output of the requests that have any."""

    def open(self, record: Admissible, stop_strings: tuple[str, ...]) -> None: ...
    def close(self, request_id: str) -> None: ...

    @property
    def find(self) -> TextStopFinder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """What every driver of a replica is given."""

    store: RequestStore
    replica_id: str
    limits_of: Callable[[WorkerDescription], Limits]
    settings: DriverSettings
    read_spec: Callable[[bytes], RequestSpec]
    strategy: Callable[[], StrategySettings]  # the pool's, now
    open_text_stops: Callable[[], TextStops]  # one for each driver: it ends with it
    committed: Callable[
        [Sequence[CommitRow]], None
    ]  # durable rows: streams here need not read them
    record_step: Callable[[StepNote], None]
    clock_ns: Callable[[], int]
    is_first_worker: Callable[[str], bool]  # of those that this replica sees


@dataclass(slots=True)
class StepTotals:
    """Sums over the steps of this driver."""

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
    num_held_sequence_steps: int = 0
    num_tokens_after_cancel: int = 0
    num_expired_prompt_tokens: int = 0
    num_replayed_tokens: int = 0

    def count(self, result: StepResult, outcome: StepOutcome) -> None:
        self.num_steps += 1
        self.num_prompt_tokens += outcome.num_prompt_tokens
        self.num_recomputed_tokens += outcome.num_recomputed_tokens
        self.num_cached_tokens += outcome.num_cached_tokens
        self.num_sampled_tokens += outcome.num_sampled_tokens
        self.num_held_sequence_steps += outcome.num_held_sequence_steps
        self.num_tokens_after_cancel += outcome.num_tokens_after_cancel
        self.num_expired_prompt_tokens += outcome.num_expired_prompt_tokens
        self.num_replayed_tokens += outcome.num_replayed_tokens
        step_ns = result.timings.total_ns
        self.busy_ns += step_ns
        if result.idle_with_work:
            self.bubble_ns += result.timings.idle_ns
        self.batch_size_ns += len(result.rows) * step_ns
        self.held_blocks_ns += result.blocks.held * step_ns

    def add(self, other: "StepTotals") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def admissible(
    record: RunningRecord, spec: RequestSpec, *, is_held: bool
) -> tuple[Admissible, tuple[str, ...]]:
    """What an admission needs, and the stop strings that the driver itself must watch for."""
    request = Admissible(
        request_id=record.request_id,
        assignment=record.assignment,
        prompt_ids=spec.prompt_ids,
        log=record.log,
        sampling=spec.sampling,
        stop=spec.stop,
        include_stop=spec.include_stop,
        cache_salt=spec.cache_salt,
        priority=record.priority,
        tenant=record.tenant,
        attempts=record.attempts,
        is_held=is_held,
    )
    return request, spec.stop_strings


def capacity_of(description: WorkerDescription) -> int:
    return capacity(
        block_size=description.block_size,
        num_total_blocks=description.num_blocks,
        max_model_tokens=description.max_model_tokens,
    )


def waiting_request(entry: QueueEntry) -> WaitingRequest:
    return WaitingRequest(
        request_id=entry.request_id,
        priority=entry.priority,
        tenant=entry.tenant,
        num_prompt_tokens=entry.num_prompt_tokens,
        num_output_tokens=entry.num_output_tokens,
        max_tokens=entry.max_tokens,
        age_ms=entry.age_ms,
        attempts=entry.attempts,
        queue_timeout_ms=entry.queue_timeout_ms,
        prefix_hashes=entry.prefix_hashes,
    )


def commit_row(row: TokenRow) -> CommitRow:
    end = row.end
    return CommitRow(
        request_id=row.request_id,
        assignment=row.assignment,
        index=row.index,
        token_ids=row.token_ids,
        finish=end.reason if end else None,
        visible_tokens=end.visible_tokens if end else -1,
        visible_chars=end.visible_chars if end else -1,
        stop_match=end.stop_match if end else "",
        error=end.error if end else "",
        num_cached_tokens=row.num_cached_tokens,
        is_held=row.is_held,
    )
