"""One plan from one snapshot, by whatever strategy."""

from dataclasses import dataclass

from builders import make_running, make_snapshot

from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.snapshot import Decision, Snapshot
from scheduler_service.planning.strategies.continuous import ContinuousStrategy


@dataclass(frozen=True, slots=True)
class Lazy:
    def plan(self, snapshot: Snapshot) -> Decision:
        return Decision(preemptions=tuple(s.request_id for s in snapshot.running))


def test_batching_is_continuous_unless_told_otherwise() -> None:
    snapshot = make_snapshot([make_running("a")])

    assert plan_step(snapshot) == ContinuousStrategy().plan(snapshot)


def test_the_strategy_given_decides() -> None:
    assert plan_step(make_snapshot([make_running("a")]), Lazy()).preemptions == ("a",)
