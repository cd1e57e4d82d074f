"""A driver's loop without I/O over a block-exact fake worker and a store in a dict, with the checks.

What it checks is told by `test_planner_property`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from fake_worker import FakeWorker, sampled_id
from hypothesis import strategies as st

from scheduler_service.planning.batch import RunningBatch
from scheduler_service.planning.live import Admissible, Ending
from scheduler_service.planning.outcome import TextStop, TokenRow
from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.request import TERMINAL, RequestStatus, move
from scheduler_service.planning.snapshot import Decision, Limits, Snapshot, WaitingRequest
from scheduler_service.planning.view import DriverView
from shared.blocks import blocks_to_run
from shared.types import (
    Assignment,
    BatchPlan,
    FinishReason,
    RefusalReason,
    Resident,
    SamplingParams,
    StopRules,
)

STOP_IDS = tuple(range(15))
STATUS_OF = {
    FinishReason.LENGTH: RequestStatus.FINISHED,
    FinishReason.STOP_TOKEN: RequestStatus.FINISHED,
    FinishReason.STOP_STRING: RequestStatus.FINISHED,
    FinishReason.CANCELLED: RequestStatus.CANCELLED,
}


@dataclass(slots=True, kw_only=True)
class Record:
    """A request as a store keeps it."""

    request_id: str
    priority: int
    arrival: int
    num_prompt_tokens: int
    max_tokens: int
    stop_string_at: int  # output tokens that complete a stop string; 0 = none
    status: RequestStatus = RequestStatus.WAITING
    log: list[int] = field(default_factory=list)
    counter: int = 0
    is_seen: bool = False  # waits, and the driver has had it in its window
    num_passed: int = 0  # by claims behind it, since then
    is_cancel_wanted: bool = False
    is_elsewhere: bool = False  # another driver claimed it

    @property
    def rank(self) -> tuple[int, int]:
        return (self.priority, self.arrival)

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.counter, self.arrival)

    def admissible(self) -> Admissible:
        return Admissible(
            request_id=self.request_id,
            assignment=self.assignment,
            prompt_ids=(7,) * self.num_prompt_tokens,
            log=tuple(self.log),
            sampling=SamplingParams(seed=self.arrival),
            stop=StopRules(max_tokens=self.max_tokens, stop_token_ids=STOP_IDS),
            priority=self.priority,
        )

    def expected_output(self) -> list[int]:
        ids: list[int] = []
        while len(ids) < self.max_tokens:
            ids.append(sampled_id(self.arrival, len(ids)))
            if ids[-1] in STOP_IDS or len(ids) == self.stop_string_at:
                break
        return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    seed: int
    limits: Limits
    num_blocks: int
    block_size: int = 4
    num_plans_in_flight: int = 2
    arrivals_per_step: float = 0.4
    cancels_per_step: float = 0.03
    takeovers_per_step: float = 0.0
    max_prompt: int = 40
    max_output: int = 24
    finds_prefixes: bool = False
    max_uncommitted: int = 3
    window: int = 8

    @property
    def may_refuse(self) -> bool:
        """A prefix hit lets plans that were sent before it was known compute more than planned.

        Admission leaves room for one such plan; what more would take is refused and planned again.
        """
        return self.finds_prefixes and self.num_plans_in_flight > 2


class Simulation:
    """A driver's loop without I/O, a store in a dict, and the checks."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.random = Random(scenario.seed)
        self.worker = FakeWorker(
            num_blocks=scenario.num_blocks,
            block_size=scenario.block_size,
            max_sequences=scenario.limits.max_sequences,
            finds_prefixes=scenario.finds_prefixes,
        )
        self.records: dict[str, Record] = {}
        self.plans: deque[BatchPlan] = deque()
        self.batches: deque[tuple[list[TokenRow], list[str]]] = deque()
        self.last_step_id = 0
        self.epoch = 1
        self.num_preemptions = 0
        self.num_bypasses = 0
        self.num_terminal = 0
        self.running_batches: list[RunningBatch] = []  # as the store has them
        self.view = self._new_view()

    # -- the loop ----------------------------------------------------------------------------------

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self._arrive()
            self._cancel_some()
            if self.random.random() < self.scenario.takeovers_per_step:
                self._take_over()
            self._step()
        self._drain()

    def _step(self) -> None:
        self._come_back()
        while self.view.num_in_flight < self.scenario.num_plans_in_flight and self._plan_once():
            pass
        if self.plans:
            self._execute()
        num_allowed = self.random.randint(0, self.scenario.max_uncommitted)
        while len(self.batches) > num_allowed:
            self._commit(*self.batches.popleft())
        if not self.plans or self.random.random() < 0.2:
            self._see_window()  # a poll

    def _drain(self) -> None:
        for _ in range(20_000):
            if all(r.status in TERMINAL for r in self.records.values()):
                break
            self._step()
        self._step()
        unfinished = [r for r in self.records.values() if r.status not in TERMINAL]
        assert not unfinished, f"stuck: {unfinished[:3]}, {self.view.snapshot()}"
        assert self.num_terminal == len(self.records)
        while self.view.has_releases or self.plans:
            self._step()
        assert self.worker.blocks().held == 0
        assert self.view.num_live == 0
        assert self.view.blocks == self.worker.blocks()

    def _plan_once(self) -> bool:
        snapshot = self.view.snapshot()
        decision = plan_step(snapshot)
        check_decision(snapshot, decision)
        claimed = self._claim([claim.request_id for claim in decision.claims])
        self.num_preemptions += len(decision.preemptions)
        self.num_bypasses += len(decision.bypassed)
        if not (decision.chunks or claimed or decision.preemptions or self.view.has_releases):
            return False
        plan = self.view.make_plan(decision, claimed, epoch=self.epoch, durable_step=0)
        self.plans.append(plan)
        return True

    def _execute(self) -> None:
        plan = self.plans.popleft()
        self._check_budget(plan)
        assert len({chunk.handle for chunk in plan.chunks}) == len(plan.chunks)

        result = self.worker.execute(plan)

        assert self.scenario.may_refuse or not result.refusals, f"{result.refusals} of {plan}"
        assert all(r.reason is RefusalReason.NO_FREE_BLOCK for r in result.refusals)
        blocks = result.blocks
        assert blocks.free + blocks.cached + blocks.held == blocks.total
        self.last_step_id = plan.step_id
        outcome = self.view.apply_result(result)
        self.batches.append((outcome.rows, outcome.requeues))

    def _check_budget(self, plan: BatchPlan) -> None:
        budget = self.scenario.limits.token_budget
        assert sum(chunk.max_num_tokens for chunk in plan.chunks) <= budget

    # -- the store ---------------------------------------------------------------------------------

    def _arrive(self) -> None:
        if self.random.random() >= self.scenario.arrivals_per_step:
            return
        scenario, random = self.scenario, self.random
        num_prompt = random.randint(1, random.choice((4, scenario.max_prompt)))
        max_tokens = random.randint(1, scenario.max_output)
        if blocks_to_run(num_prompt, max_tokens, scenario.block_size) > scenario.num_blocks:
            return  # refused at submit
        arrival = len(self.records)
        self.records[f"q{arrival}"] = Record(
            request_id=f"q{arrival}",
            priority=random.choice((0, 0, 0, 1, 5)),
            arrival=arrival,
            num_prompt_tokens=num_prompt,
            max_tokens=max_tokens,
            stop_string_at=random.choice((0, 0, 0, 3)),
        )

    def _cancel_some(self) -> None:
        open_records = [r for r in self.records.values() if r.status not in TERMINAL]
        if not open_records or self.random.random() >= self.scenario.cancels_per_step:
            return
        record = self.random.choice(open_records)
        if record.status is RequestStatus.WAITING:
            self._move(record, RequestStatus.CANCELLED)
            return
        record.is_cancel_wanted = True
        self._cancel_running(record)

    def _cancel_running(self, record: Record) -> None:
        row = self.view.cancel(record.request_id, FinishReason.CANCELLED)
        if row is not None:
            self.batches.append(([row], []))

    def _come_back(self) -> None:
        """Other drivers give up what they took."""
        for record in self.records.values():
            if record.is_elsewhere and self.random.random() < 0.2:
                record.is_elsewhere = False
                is_cancelled = record.is_cancel_wanted
                to = RequestStatus.CANCELLED if is_cancelled else RequestStatus.WAITING
                self._move(record, to)

    def _waiting(self) -> list[Record]:
        waiting = [r for r in self.records.values() if r.status is RequestStatus.WAITING]
        return sorted(waiting, key=lambda record: record.rank)

    def _see_window(self) -> None:
        waiting = self._waiting()
        for record in waiting[: self.scenario.window]:
            record.is_seen = True
        window = [
            WaitingRequest(
                request_id=r.request_id,
                priority=r.priority,
                num_prompt_tokens=r.num_prompt_tokens,
                num_output_tokens=len(r.log),
                max_tokens=r.max_tokens,
            )
            for r in waiting[: self.scenario.window]
        ]
        self.view.waiting.see(window, len(waiting))

    def _claim(self, request_ids: Sequence[str]) -> list[Admissible]:
        """Some claims are lost: another driver was first."""
        if not request_ids:
            return []
        granted = []
        for record in map(self.records.__getitem__, request_ids):
            if record.status is not RequestStatus.WAITING:
                continue  # cancelled since the window was read
            self._move(record, RequestStatus.RUNNING)
            record.counter += 1
            record.is_seen = False
            record.num_passed = 0
            record.is_elsewhere = self.random.random() < 0.05
            if not record.is_elsewhere:
                granted.append(record)
        for waiting in filter(lambda record: record.is_seen, self._waiting()):
            waiting.num_passed += sum(record.rank > waiting.rank for record in granted)
            assert waiting.num_passed <= self.scenario.limits.max_bypasses, waiting
        self._see_window()
        return [record.admissible() for record in granted]

    def _commit(self, rows: list[TokenRow], requeues: list[str]) -> None:
        for row in rows:
            record = self.records[row.request_id]
            is_running = record.status is RequestStatus.RUNNING
            if not is_running or row.assignment != record.assignment:
                self.view.end(record.request_id, Ending.STALE)
                continue
            assert row.index == len(record.log), f"{row} after {len(record.log)} of {record}"
            record.log.extend(row.token_ids)
            if row.end is not None:
                self._finish(record, row.end.reason)
        for request_id in requeues:
            record = self.records[request_id]
            if record.status is RequestStatus.RUNNING and record.is_cancel_wanted:
                self._move(record, RequestStatus.CANCELLED)
            elif record.status is RequestStatus.RUNNING:
                self._move(record, RequestStatus.WAITING)
        self._see_window()

    def _finish(self, record: Record, reason: FinishReason) -> None:
        self._move(record, STATUS_OF[reason])
        expected = record.expected_output()
        if record.status is RequestStatus.FINISHED:
            assert record.log == expected, record
        else:
            assert record.log == expected[: len(record.log)], record

    def _move(self, record: Record, to: RequestStatus) -> None:
        record.status = move(record.request_id, record.status, to)
        self.num_terminal += to in TERMINAL

    # -- the driver --------------------------------------------------------------------------------

    def _new_view(self) -> DriverView:
        view = DriverView(
            limits=self.scenario.limits,
            block_size=self.scenario.block_size,
            find_text_stop=self._find_text_stop,
        )
        return self._attached(view)

    def _attached(self, view: DriverView) -> DriverView:
        resident = Resident(
            incarnation="w",
            epoch=self.epoch,
            last_step_id=self.last_step_id,
            sequences=self.worker.resident(),
            blocks=self.worker.blocks(),
        )
        running = [
            r.admissible()
            for r in self.records.values()
            if r.status is RequestStatus.RUNNING and not r.is_elsewhere
        ]
        outcome = view.attach(resident, running, self.running_batches)
        self.view = view
        self.batches.append((outcome.rows, outcome.requeues))
        for record in self.records.values():
            record.is_seen, record.num_passed = False, 0
        return view

    def _take_over(self) -> None:
        """The driver dies: plans not begun are dropped, rows not committed only the worker has."""
        self.plans.clear()
        self.batches.clear()
        self.epoch += 1
        self._new_view()
        for record in self.records.values():
            if record.is_cancel_wanted and record.status is RequestStatus.RUNNING:
                self._cancel_running(record)

    def _find_text_stop(
        self, request_id: str, output_ids: Sequence[int], num_new: int
    ) -> TextStop | None:
        at = self.records[request_id].stop_string_at
        if not at or len(output_ids) < at:
            return None
        return TextStop(stop_string="x", num_tokens=at, visible_tokens=at, visible_chars=0)


def check_decision(snapshot: Snapshot, decision: Decision) -> None:
    """I6 for one decision, and one place for each request."""
    limits = snapshot.limits
    assert decision.num_tokens <= limits.token_budget
    num_live = sum(not s.is_ending for s in snapshot.running)
    assert not decision.claims or num_live + len(decision.claims) <= limits.max_sequences
    grants = (*decision.chunks, *decision.claims)
    assert sum(grant.num_new_blocks for grant in grants) <= max(0, snapshot.num_available_blocks)
    assert all(grant.num_tokens >= 1 for grant in grants)
    placed = [grant.request_id for grant in grants]
    placed += [skipped.request_id for skipped in decision.skipped if skipped.request_id]
    known = [s.request_id for s in snapshot.running if not s.is_ending]
    known += [w.request_id for w in snapshot.waiting]
    assert sorted(placed) == sorted(known)
    assert not (decision.preemptions and decision.claims)


LIMITS = st.builds(
    Limits,
    token_budget=st.integers(1, 64),
    max_sequences=st.integers(1, 12),
    chunk_size=st.integers(0, 16),
    max_bypasses=st.integers(0, 6),
    max_prompt_skips=st.integers(0, 6),
    max_partial_prompts=st.integers(0, 3),
    watermark=st.sampled_from([0.0, 0.02, 0.2]),
)
