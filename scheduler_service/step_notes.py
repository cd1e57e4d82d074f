"""What is kept of each step for people and tools: who was in it, who was not and why, what it took.

Values only; `step_log` keeps them, `step_file` writes them down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler_service.planning.outcome import TokenRow
from scheduler_service.planning.snapshot import Decision, Skipped, Snapshot
from scheduler_service.planning.view import DriverView
from shared.types import BatchPlan, BlockCounts, StepResult, StepTimings, WorkerDescription


@dataclass(frozen=True, slots=True)
class ScheduledNote:
    request_id: str
    num_tokens: int
    is_decode: bool
    is_admitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedNote:
    """A request that this step brought to the worker."""

    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int  # in its log already
    max_tokens: int
    age_ms: int  # since it was submitted


@dataclass(frozen=True, slots=True)
class EndedNote:
    request_id: str
    num_output_tokens: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote:
    worker: str
    incarnation: str
    epoch: int
    step_id: int
    scheduled: tuple[ScheduledNote, ...]
    admitted: tuple[AdmittedNote, ...]
    skipped: tuple[Skipped, ...]
    preempted: tuple[str, ...]
    num_waiting: int
    num_running: int
    plan_ns: int
    strategy: str  # whose rules made the plan
    predicted_ns: int = 0
    blocks: BlockCounts | None = None
    timings: StepTimings = field(default_factory=StepTimings)
    num_sampled: int = 0
    ended: tuple[EndedNote, ...] = ()

    @classmethod
    def of_plan(  # noqa: PLR0913 (all that the note tells)
        cls,
        plan: BatchPlan,
        decision: Decision,
        snapshot: Snapshot,
        *,
        view: DriverView,
        description: WorkerDescription,
        num_running: int,
        plan_ns: int,
        strategy: str,
    ) -> "StepNote":
        return cls(
            worker=description.name,
            incarnation=description.incarnation,
            epoch=plan.epoch,
            step_id=plan.step_id,
            scheduled=_scheduled(plan, decision, view),
            admitted=_admitted(plan, snapshot),
            skipped=decision.skipped,
            preempted=decision.preemptions,
            num_waiting=view.waiting.num_waiting,
            num_running=num_running,
            plan_ns=plan_ns,
            predicted_ns=plan.predicted_ns,
            strategy=strategy,
        )

    def finished(
        self, result: StepResult, num_sampled: int, rows: Sequence[TokenRow]
    ) -> "StepNote":
        ended = tuple(
            EndedNote(row.request_id, row.index + len(row.token_ids), row.end.reason)
            for row in rows
            if row.end is not None
        )
        return replace(
            self,
            blocks=result.blocks,
            timings=result.timings,
            num_sampled=num_sampled,
            ended=ended,
        )


def _scheduled(plan: BatchPlan, decision: Decision, view: DriverView) -> tuple[ScheduledNote, ...]:
    admitted = {a.handle for a in plan.admissions}
    decodes = {c.request_id for c in decision.chunks if c.is_decode}
    notes = []
    for chunk in plan.chunks:
        live = view.live_by_handle(chunk.handle)
        if live is not None:
            name = live.request_id
            is_new = chunk.handle in admitted
            notes.append(ScheduledNote(name, chunk.max_num_tokens, name in decodes, is_new))
    return tuple(notes)


def _admitted(plan: BatchPlan, snapshot: Snapshot) -> tuple[AdmittedNote, ...]:
    if not plan.admissions:
        return ()
    ages_ms = {request.request_id: snapshot.age_ms(request) for request in snapshot.waiting}
    return tuple(
        AdmittedNote(
            request_id=admission.request_id,
            num_prompt_tokens=admission.num_prompt_tokens,
            num_output_tokens=len(admission.token_ids) - admission.num_prompt_tokens,
            max_tokens=admission.stop.max_tokens,
            age_ms=ages_ms.get(admission.request_id, 0),
        )
        for admission in plan.admissions
    )
