"""One worker and its driver on a virtual clock: the same planning code, the same steps ahead.

A plan made at `now` can run once it has arrived and the step before it has ended; its result is
known to the driver when it has run, not before. Times are in nanoseconds.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler_service.batching import Batching
from scheduler_service.driver_values import StepTotals
from scheduler_service.planning.outcome import TextStop
from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.results import StepOutcome
from scheduler_service.planning.snapshot import Decision, Limits
from scheduler_service.planning.view import DriverView
from shared.profiles import Overheads
from shared.strategy import StrategySettings
from shared.types import BatchPlan, Resident, StepResult
from tokentide.bench.operations_watch import Steps
from tokentide.simulator.queue import SimulatedQueue
from tokentide.simulator.requests import HeldBatch, SimulatedRequest
from worker_service.simulated.engine import SimulatedEngine

MAX_PLANS_IN_FLIGHT = 2
_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A plan in flight, and what will have come of it."""

    result: StepResult
    end_ns: int


class SimulatedDriver:
    def __init__(
        self,
        engine: SimulatedEngine,
        queue: SimulatedQueue,
        limits: Limits,
        pool_settings: Callable[[], StrategySettings],
        overheads: Overheads,
        steps: Steps,
    ) -> None:
        facts = engine.facts
        self._engine = engine
        self._queue = queue
        self._batching = Batching(limits, pool_settings)
        self._overheads = overheads
        self._steps = steps
        self._view = DriverView(
            limits=self._batching.limits,
            block_size=facts.block_size,
            find_text_stop=_no_text_stop,
            max_model_tokens=facts.max_model_tokens,
        )
        self._view.attach(_untouched(engine), [])
        self._in_flight: deque[Running] = deque()
        self._seen_version = -1
        self._unfinished: set[int] = set()  # handles that the worker has work for
        self.requests: dict[str, SimulatedRequest] = {}  # that run here
        self.rejected: list[SimulatedRequest] = []  # by a queue policy; whoever plans takes them
        self.totals = StepTotals()
        self.free_ns = 0  # when the last step sent ends
        self.wake_ns: int | None = None  # plan anew then, though nothing happens

    @property
    def may_plan(self) -> bool:
        return len(self._in_flight) < MAX_PLANS_IN_FLIGHT

    def plan_once(self, now_ns: int) -> int | None:
        """When the plan's step will have ended. None: there was nothing to send."""
        now_ms = now_ns // 1_000_000
        decision = self._decide(now_ms)
        self.wake_ns = None if decision.wait_ms is None else now_ns + decision.wait_ms * 1_000_000
        if decision.rejects:
            self.rejected += self._queue.reject(decision.rejects)
        claimed = self._claim(decision) if decision.claims else []
        is_idle = not (decision.chunks or claimed or decision.preemptions)
        if is_idle and not self._view.has_releases:
            return None
        is_held = decision.forms_batch and self._batching.start("").is_held
        if is_held:
            batch = HeldBatch(num_running=len(claimed))
            for request in claimed:
                request.batch = batch
        admissible = [request.admissible(is_held=is_held) for request in claimed]
        running_batch = None
        if decision.forms_batch:
            running_batch = self._batching.running_batch(str(self._view.next_step_id), admissible)
        plan = self._view.make_plan(
            decision,
            admissible,
            epoch=_EPOCH,
            durable_step=0,
            batch=running_batch,
            now_ms=now_ms,
        )
        self.totals.num_preemptions += len(decision.preemptions)
        return self._run(plan, claimed, now_ns)

    def take_result(self) -> StepOutcome:
        """Of the step that has just ended."""
        running = self._in_flight.popleft()
        outcome = self._view.apply_result(running.result)
        self.totals.count(running.result, outcome)
        return outcome

    def _decide(self, now_ms: int) -> Decision:
        view, batching = self._view, self._batching
        batching.follow(view.batch)
        view.limits = batching.limits
        if self._seen_version != self._queue.version:
            self._seen_version = self._queue.version
            view.waiting.see(self._queue.window(now_ms), len(self._queue), 0, now_ms)
        return plan_step(view.snapshot(now_ms), batching.strategy)

    def _claim(self, decision: Decision) -> list[SimulatedRequest]:
        request_ids = [claim.request_id for claim in decision.claims]
        claimed = self._queue.claim(request_ids, decision.claim_at_least)
        for request in claimed:
            self.requests[request.request_id] = request
        return claimed

    def _run(self, plan: BatchPlan, claimed: Sequence[SimulatedRequest], now_ns: int) -> int:
        """The engine's answer depends on the order of plans only, so it is asked at once."""
        result = self._engine.execute(plan)
        gap_ns = self._overheads.gap_ns if self.free_ns else 0
        began_ns = max(now_ns + self._overheads.dispatch_ns, self.free_ns + gap_ns)
        step_ns = result.timings.total_ns
        if self._unfinished:
            self.totals.bubble_ns += began_ns - self.free_ns
        self.free_ns = began_ns + step_ns
        self._follow_work(plan, result)
        for request in claimed:
            self._steps.first_in_step_s.setdefault(request.request_id, began_ns / 1e9)
        self._steps.forward_ns.append(step_ns)
        self._steps.total_ns.append(step_ns)
        self._in_flight.append(Running(result=result, end_ns=self.free_ns))
        return self.free_ns

    def _follow_work(self, plan: BatchPlan, result: StepResult) -> None:
        unfinished = self._unfinished
        unfinished.difference_update(release.handle for release in plan.releases)
        unfinished.update(admission.handle for admission in plan.admissions)
        unfinished.difference_update(refusal.handle for refusal in result.refusals)
        unfinished.difference_update(row.handle for row in result.rows if row.finish is not None)


def _untouched(engine: SimulatedEngine) -> Resident:
    return Resident(
        incarnation="", epoch=_EPOCH, last_step_id=0, sequences=(), blocks=engine.blocks()
    )


def _no_text_stop(_: str, __: Sequence[int], ___: int) -> TextStop | None:
    return None
