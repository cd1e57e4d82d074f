"""What the driver expects of its worker's prefix cache, and what that does to plans."""

from builders import make_snapshot, make_waiting
from fake_worker import FakeWorker

from scheduler_service.planning.live import Admissible
from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.snapshot import Decision, Limits, SkipReason, WaitingRequest
from scheduler_service.planning.view import DriverView
from shared.prefixes import prefix_hashes
from shared.types import Assignment, Resident, SamplingParams, StopRules

SHARED = tuple(range(512))


def prompt(number: int) -> tuple[int, ...]:
    return SHARED + (1000 + number,) * 32


def hashes(number: int) -> tuple[int, ...]:
    return prefix_hashes(prompt(number), b"")


def waiting(number: int) -> WaitingRequest:
    return make_waiting(f"r{number}", num_prompt_tokens=544, prefix_hashes=hashes(number))


def admissible(number: int) -> Admissible:
    return Admissible(
        request_id=f"r{number}",
        assignment=Assignment(1, number),
        prompt_ids=prompt(number),
        log=(),
        sampling=SamplingParams(seed=number),
        stop=StopRules(max_tokens=8),
    )


class CachingWorker(FakeWorker):
    """Finds the shared beginning once somebody has computed it."""

    def __init__(self, *, is_cold: bool = False) -> None:
        super().__init__(num_blocks=4000)
        self.num_computed = 0
        self._is_cold = is_cold

    def _admit(self, admission):
        refusal = super()._admit(admission)
        if self.num_computed >= len(SHARED) and not self._is_cold:
            sequence = self._sequences[admission.handle]
            sequence.num_computed_tokens = sequence.num_unreported_cached_tokens = len(SHARED)
        return refusal

    def execute(self, plan):
        result = super().execute(plan)
        self.num_computed += sum(row.num_computed_tokens for row in result.rows)
        return result


class Driven:
    def __init__(self, worker: FakeWorker, num_requests: int) -> None:
        self.worker = worker
        self.view = DriverView(
            limits=Limits(token_budget=512, watermark=0.0),
            block_size=16,
            find_text_stop=lambda *_: None,
        )
        blocks = worker.blocks()
        self.view.attach(
            Resident(incarnation="w", epoch=1, last_step_id=0, sequences=(), blocks=blocks), []
        )
        self.left = list(range(num_requests))
        self.num_steps = 0
        self.reasons: set[SkipReason] = set()

    def step(self) -> Decision:
        """One plan, executed at once."""
        self.view.waiting.see([waiting(number) for number in self.left], len(self.left))
        decision = plan_step(self.view.snapshot())
        self.reasons |= {skipped.reason for skipped in decision.skipped}
        numbers = [int(claim.request_id[1:]) for claim in decision.claims]
        self.left = [number for number in self.left if number not in numbers]
        claimed = [admissible(number) for number in numbers]
        plan = self.view.make_plan(decision, claimed, epoch=1, durable_step=0)
        self.view.apply_result(self.worker.execute(plan))
        self.num_steps += 1
        return decision

    def run(self) -> int:
        """Steps until all have ended."""
        while self.left or self.view.num_live:
            self.step()
            assert self.num_steps < 300
        return self.num_steps


def test_requests_with_a_shared_beginning_come_in_many_at_once() -> None:
    """One computes it; then each asks for its own 32 tokens only, sixteen to a step."""
    driven = Driven(CachingWorker(), 33)

    claims = [len(driven.step().claims) for _ in range(4)]

    assert claims == [1, 15, 16, 1]
    assert driven.run() < 16


def test_what_was_evicted_is_expected_once_and_no_more() -> None:
    driven = Driven(CachingWorker(is_cold=True), 8)

    driven.run()

    assert driven.num_steps < 40
    assert driven.view.blocks.held == 0


def test_nobody_computes_what_a_live_prompt_is_about_to_compute() -> None:
    worker = CachingWorker()
    driven = Driven(worker, 2)
    driven.view.limits = Limits(token_budget=512, chunk_size=256, watermark=0.0)

    first = driven.step()

    assert [claim.request_id for claim in first.claims] == ["r0"]
    assert SkipReason.AWAITS_PREFIX in driven.reasons

    driven.run()
    assert worker.num_computed < 2 * 544


def test_without_hashes_nothing_is_expected() -> None:
    requests = [make_waiting(f"w{i}", num_prompt_tokens=300) for i in range(2)]

    decision = plan_step(make_snapshot(waiting=requests, known_prefixes={1, 2}))

    assert [claim.num_expected_cached_tokens for claim in decision.claims] == [0, 0]


def test_an_expected_beginning_takes_no_budget_but_all_its_blocks() -> None:
    snapshot = make_snapshot(waiting=[waiting(0)], known_prefixes=set(hashes(0)))

    (claim,) = plan_step(snapshot).claims

    assert (claim.num_tokens, claim.num_expected_cached_tokens) == (32, 512)
    assert claim.num_new_blocks == 35
