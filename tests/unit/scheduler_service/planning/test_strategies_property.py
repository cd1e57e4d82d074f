"""Any strategy, switched at any time, over the block-exact fake worker: the invariants hold, all end.

Beside those of `test_planner_property`: a batch is claimed whole or not at all (a member may have been
cancelled while it was forming), nobody joins one that runs, and it ends by the rules it began with.
"""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_simulation import LIMITS, Scenario, Simulation

from scheduler_service.planning.batch import RunningBatch
from scheduler_service.planning.live import Admissible
from scheduler_service.planning.request import RequestStatus
from scheduler_service.planning.snapshot import Decision, Limits, Snapshot
from scheduler_service.planning.strategies.selection import limits_under, strategy_of
from shared.strategy import WHOLE_PREFILL, StrategySettings
from shared.types import BatchPlan

STEP_MS = 10
CHOICES = (
    StrategySettings(),
    StrategySettings(chunk_size=5, token_budget=20, admission="guaranteed"),
    StrategySettings(chunk_size=WHOLE_PREFILL, refill_delay_ms=25),
    StrategySettings(name="static", batch_size=3),
    StrategySettings(name="static", batch_size=5, max_wait_ms=60, chunk_size=WHOLE_PREFILL),
    StrategySettings(name="static", batch_size=1, release="stream"),
    StrategySettings(name="dynamic", preferred_batch_sizes=(2, 4), max_queue_delay_ms=45),
    StrategySettings(name="dynamic", max_batch_size=6),
)


class SwitchingSimulation(Simulation):
    def __init__(self, scenario: Scenario, switches_per_step: float) -> None:
        self._switches_per_step = switches_per_step
        self._num_steps = 0
        self._is_draining = False
        self.settings = CHOICES[scenario.seed % len(CHOICES)]
        self.used = self.settings
        self.num_batches = 0
        self.num_missed_batches = 0
        super().__init__(scenario)

    def _step(self) -> None:
        self._num_steps += 1
        if self.random.random() < self._switches_per_step and not self._is_draining:
            self.settings = self.random.choice(CHOICES)
        super()._step()

    def _drain(self) -> None:
        self._is_draining = True
        self.settings = StrategySettings()  # a batch that is never full would wait for ever
        super()._drain()
        assert self.view.batch is None

    def _now_ms(self) -> int:
        return self._num_steps * STEP_MS

    def _plan_once(self) -> bool:
        batch = self.view.batch
        self.used = batch.settings if batch is not None else self.settings
        self.view.limits = limits_under(self.used, self.scenario.limits)
        snapshot = self.view.snapshot(self._now_ms())
        decision = strategy_of(self.used).plan(snapshot)
        self._check(snapshot, decision)
        claimed = self._claim_at_least(decision)
        if not (decision.chunks or claimed or decision.preemptions or self.view.has_releases):
            return False
        started = self._start(decision, claimed)
        plan = self.view.make_plan(
            decision,
            claimed,
            epoch=self.epoch,
            durable_step=0,
            batch=started,
            now_ms=self._now_ms(),
        )
        self.plans.append(plan)
        return True

    def _check(self, snapshot: Snapshot, decision: Decision) -> None:
        is_batched = self.used.name != "continuous"
        live = [s for s in snapshot.running if not s.is_ending]
        assert decision.forms_batch == (is_batched and bool(decision.claims))
        assert not (decision.forms_batch and live), "somebody joined a batch"
        assert len(live) + len(decision.claims) <= snapshot.limits.max_sequences or not (
            decision.claims
        )
        grants = (*decision.chunks, *decision.claims)
        assert sum(g.num_new_blocks for g in grants) <= max(0, snapshot.num_available_blocks)
        placed = [g.request_id for g in grants]
        placed += [s.request_id for s in decision.skipped if s.request_id]
        known = [s.request_id for s in live] + [w.request_id for w in snapshot.waiting]
        assert sorted(placed) == sorted(known), "one place or one reason for each"

    def _claim_at_least(self, decision: Decision) -> list[Admissible]:
        records = [self.records[claim.request_id] for claim in decision.claims]
        waiting = [r for r in records if r.status is RequestStatus.WAITING]
        if len(waiting) < decision.claim_at_least:
            self.num_missed_batches += decision.forms_batch
            waiting = []
        for record in waiting:
            self._move(record, RequestStatus.RUNNING)
            record.counter += 1
        if records:
            self._see_window()
        return [record.admissible() for record in waiting]

    def _start(self, decision: Decision, claimed: Sequence[Admissible]) -> RunningBatch | None:
        if not (decision.forms_batch and claimed):
            return None
        self.num_batches += 1
        members = frozenset(request.request_id for request in claimed)
        batch = RunningBatch(
            batch_id=str(self.num_batches), settings=self.used, size=len(members), members=members
        )
        self.running_batches = [batch]
        return batch

    def _see_window(self) -> None:
        super()._see_window()
        self.view.waiting.seen_ms = self._now_ms()

    def _check_budget(self, plan: BatchPlan) -> None:
        """A whole prompt above the budget goes alone beside decodes."""
        sizes = sorted(chunk.max_num_tokens for chunk in plan.chunks)
        budget = self.scenario.limits.token_budget
        if sum(sizes) > max(budget, 20) and sizes:
            assert set(sizes[:-1]) <= {1}, sizes


SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 2**32),
    limits=LIMITS,
    num_blocks=st.integers(6, 60),
    num_plans_in_flight=st.integers(1, 3),
    arrivals_per_step=st.sampled_from([0.4, 1.0]),
    cancels_per_step=st.sampled_from([0.0, 0.1, 0.5]),
    takeovers_per_step=st.sampled_from([0.0, 0.0, 0.05]),
    max_prompt=st.sampled_from([8, 40]),
    max_output=st.sampled_from([8, 24]),
    max_uncommitted=st.integers(0, 6),
    window=st.sampled_from([8, 64]),
)


@pytest.mark.slow
@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(scenario=SCENARIOS, switches_per_step=st.sampled_from([0.0, 0.05, 0.5]))
def test_any_strategy_switched_at_any_time_keeps_the_invariants_and_ends(
    scenario: Scenario, switches_per_step: float
) -> None:
    SwitchingSimulation(scenario, switches_per_step).run(num_steps=60)


@pytest.mark.slow
def test_members_cancelled_while_a_batch_forms_are_met_and_lose_nothing() -> None:
    scenario = Scenario(
        seed=3,
        limits=Limits(max_sequences=12),
        num_blocks=60,
        cancels_per_step=0.7,
        arrivals_per_step=1.0,
    )
    simulation = SwitchingSimulation(scenario, switches_per_step=0.0)

    simulation.run(num_steps=600)

    assert simulation.num_batches > 20
    assert simulation.num_missed_batches > 0
