"""A driver's steps: what each is decided to do, the plan that comes of it, and what its result is worth.

Keeps the account of them. No calls (I12): claims are made between `decide` and `make_plan`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.batching import Batching
from scheduler_service.driver_values import DriverContext, StepTotals
from scheduler_service.planning.live import Admissible
from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.results import StepOutcome
from scheduler_service.planning.snapshot import Decision, Snapshot
from scheduler_service.planning.view import DriverView
from scheduler_service.step_notes import StepNote
from scheduler_service.store.values import BatchStart, Fence
from scheduler_service.worker_pace import WorkerPace
from shared.types import BatchPlan, StepResult, WorkerDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    decision: Decision
    snapshot: Snapshot  # that it was made from
    start: BatchStart | None  # of the batch that it forms, should it form one
    plan_ns: int  # what it took so far

    def is_idle(self, claimed: Sequence[Admissible]) -> bool:
        return not (self.decision.chunks or claimed or self.decision.preemptions)


class StepMaking:
    def __init__(
        self,
        context: DriverContext,
        description: WorkerDescription,
        view: DriverView,
        batching: Batching,
    ) -> None:
        self._context = context
        self._description = description
        self._view = view
        self._batching = batching
        self._notes: deque[StepNote] = deque()  # of plans in flight
        self._pace = WorkerPace()
        self.totals = StepTotals()

    def now_ms(self) -> int:
        return self._context.clock_ns() // 1_000_000

    def decide(self, fence: Fence) -> Decided:
        started_ns = self._context.clock_ns()
        view, batching = self._view, self._batching
        batching.follow(view.batch)
        view.limits = batching.limits
        is_first = self._context.is_first_worker(fence.incarnation)
        snapshot = view.snapshot(self.now_ms(), is_first_worker=is_first)
        decision = plan_step(snapshot, batching.strategy)
        batch_id = f"{fence.incarnation}/{fence.epoch}/{view.next_step_id}"
        return Decided(
            decision=decision,
            snapshot=snapshot,
            start=batching.start(batch_id) if decision.forms_batch else None,
            plan_ns=self._context.clock_ns() - started_ns,
        )

    def make_plan(
        self,
        decided: Decided,
        claimed: Sequence[Admissible],
        *,
        epoch: int,
        durable_step: int,
        num_running: int,
    ) -> BatchPlan:
        """`num_running`: in the whole pool, for the note of this step."""
        started_ns = self._context.clock_ns()
        batching, decision, start = self._batching, decided.decision, decided.start
        plan = self._view.make_plan(
            decision,
            claimed,
            epoch=epoch,
            durable_step=durable_step,
            batch=batching.running_batch(start.batch_id, claimed) if start else None,
            now_ms=self.now_ms(),
            predict_ns=self._pace.predict_ns,
        )
        plan_ns = decided.plan_ns + self._context.clock_ns() - started_ns
        self.totals.plan_ns += plan_ns
        self.totals.num_preemptions += len(decision.preemptions)
        note = StepNote.of_plan(
            plan,
            decision,
            decided.snapshot,
            view=self._view,
            description=self._description,
            num_running=num_running,
            plan_ns=plan_ns,
            strategy=batching.settings.name,
        )
        self._notes.append(note)
        return plan

    def finish(self, result: StepResult) -> StepOutcome:
        outcome = self._view.apply_result(result)
        self.totals.count(result, outcome)
        self._pace.learn(outcome.work, result.timings.total_ns)
        note = self._notes.popleft()
        self._context.record_step(note.finished(result, outcome.num_sampled_tokens, outcome.rows))
        return outcome
