"""Runs a workload through simulated drivers and workers, event by event, on a virtual clock.

Clients behave as those of `bench.load`: open loop, or so many at once. Times are in nanoseconds; the
load starts at 0.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

from scheduler_service.driver_values import StepTotals
from scheduler_service.planning.admission import can_ever_run
from scheduler_service.planning.outcome import TokenRow
from shared.profiles import Overheads
from shared.strategy import StrategySettings
from shared.types import FinishReason
from tokentide.bench.load import Observation
from tokentide.bench.operations_watch import Steps
from tokentide.bench.workload import WorkRequest
from tokentide.simulator.driver import SimulatedDriver
from tokentide.simulator.queue import SimulatedQueue
from tokentide.simulator.requests import STOP_ID, SimulatedRequest
from worker_service.engine.facts import ModelFacts

INSTANTS_A_TURN = 256  # between two chances for others to run


class _Event(IntEnum):
    """What happens first, of what happens at one instant."""

    RESULT = 0  # a step has ended: which driver's
    ENDED = 1  # a client has its last token: whose
    SUBMIT = 2  # a request is in the queue
    WAKE = 3  # a driver wanted to decide anew
    CUT = 4  # what came before is not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedService:
    """What holds for all requests and workers."""

    facts: ModelFacts  # of every worker
    overheads: Overheads
    pool_settings: Callable[[], StrategySettings]


class Simulation:
    """`drivers` and `queue` belong together. Use once."""

    def __init__(
        self,
        drivers: Sequence[SimulatedDriver],
        queue: SimulatedQueue,
        service: SimulatedService,
        steps: Steps,
        seed: int = 0,
    ) -> None:
        self.service = service
        self._drivers = drivers
        self._queue = queue
        self._steps = steps
        self._seed = seed
        self._events: list[tuple[int, int, int, object]] = []
        self._order = count()  # events of one instant and kind keep the order in which they came
        self._submit_free_ns = 0
        self._backlog: deque[WorkRequest] = deque()
        self._tell: Callable[[Observation], None] = _tell_nobody
        self._num_open = 0
        self._is_news = [False] * len(drivers)  # something may have changed a driver's plan
        self._wakes_ns = [0] * len(drivers)  # the last wake that each has asked for
        self.observations: list[Observation] = []
        self.totals_at_cut: StepTotals | None = None

    def send_at_arrival(self, requests: Sequence[WorkRequest]) -> None:
        for work in requests:
            self._send(work, round(work.arrival_s * 1e9))

    def send_at_once(self, requests: Sequence[WorkRequest], concurrency: int) -> None:
        """So many under way at once; the next leaves when one has ended."""
        self._backlog = deque(requests)
        for _ in range(min(concurrency, len(requests))):
            self._send(self._backlog.popleft(), 0)

    def cut_at(self, cut_s: float) -> None:
        if cut_s > 0:
            self._push(round(cut_s * 1e9), _Event.CUT, None)

    def run(self, ended: Callable[[Observation], None] | None = None) -> Iterator[None]:
        """To the end, with a chance for others to run now and then. Raises ValueError if requests
        wait for ever: a static batch that is never full."""
        self._tell = ended or _tell_nobody
        events, num_turns = self._events, 0
        while events:
            now_ns = events[0][0]
            while events and events[0][0] == now_ns:
                _, kind, _, subject = heapq.heappop(events)
                self._handle(_Event(kind), subject, now_ns)
            self._plan_all(now_ns)
            num_turns += 1
            if num_turns % INSTANTS_A_TURN == 0:
                yield
        if self._num_open:
            raise ValueError(
                f"{self._num_open} requests wait for ever with {self.service.pool_settings().as_json()}"
            )

    def totals(self) -> StepTotals:
        totals = StepTotals()
        for driver in self._drivers:
            totals.add(driver.totals)
        return totals

    # -- clients -----------------------------------------------------------------------------------

    def _send(self, work: WorkRequest, due_ns: int) -> None:
        overheads = self.service.overheads
        self._submit_free_ns = max(due_ns, self._submit_free_ns) + overheads.submit_each_ns
        request = SimulatedRequest.of_work(work, len(self.observations), due_ns / 1e9, self._seed)
        self.observations.append(request.observation)
        self._num_open += 1
        self._push(self._submit_free_ns + overheads.submit_ns, _Event.SUBMIT, request)

    def _end(self, request: SimulatedRequest, at_ns: int) -> None:
        request.observation.ended_s = at_ns / 1e9
        self._push(at_ns, _Event.ENDED, request.observation)

    def _on_ended(self, observation: Observation, now_ns: int) -> None:
        self._num_open -= 1
        self._tell(observation)
        if self._backlog:
            self._send(self._backlog.popleft(), now_ns)

    # -- service -----------------------------------------------------------------------------------

    def _push(self, at_ns: int, kind: _Event, subject: object) -> None:
        heapq.heappush(self._events, (at_ns, kind, next(self._order), subject))

    def _handle(self, kind: _Event, subject: object, now_ns: int) -> None:
        match kind:
            case _Event.RESULT:
                assert isinstance(subject, int)
                self._on_result(subject, now_ns)
            case _Event.ENDED:
                assert isinstance(subject, Observation)
                self._on_ended(subject, now_ns)
            case _Event.SUBMIT:
                assert isinstance(subject, SimulatedRequest)
                self._on_submit(subject, now_ns)
            case _Event.WAKE:
                assert isinstance(subject, int)
                self._is_news[subject] = True
            case _Event.CUT:
                self.totals_at_cut = self.totals()
                self._steps.forget_durations()

    def _on_submit(self, request: SimulatedRequest, now_ns: int) -> None:
        status = self._refusal(request)
        if status:
            request.observation.status = status
            self._end(request, now_ns)
            return
        request.submitted_ns = now_ns
        self._queue.add(request)
        self._tell_drivers()

    def _refusal(self, request: SimulatedRequest) -> str:
        facts, settings = self.service.facts, self.service.pool_settings()
        fits = can_ever_run(
            len(request.prompt_ids),
            request.stop.max_tokens,
            block_size=facts.block_size,
            num_total_blocks=facts.num_blocks,
            max_model_tokens=facts.max_model_tokens,
        )
        if not fits:
            return "INVALID_ARGUMENT"
        most = settings.queue_policy(0).max_queue_size if settings.name == "dynamic" else 0
        return "RESOURCE_EXHAUSTED" if most and len(self._queue) >= most else ""

    def _tell_drivers(self) -> None:
        self._is_news = [True] * len(self._drivers)

    def _plan_all(self, now_ns: int) -> None:
        """Who is free first plans first: claims first come."""
        order: Sequence[int] = (0,)
        if len(self._drivers) > 1:
            order = sorted(range(len(self._drivers)), key=lambda n: (self._drivers[n].free_ns, n))
        for number in order:
            if self._is_news[number]:
                self._plan(number, now_ns)

    def _plan(self, number: int, now_ns: int) -> None:
        driver = self._drivers[number]
        while driver.may_plan:
            end_ns = driver.plan_once(now_ns)
            self._expire(driver, now_ns)
            if end_ns is None:
                self._is_news[number] = False
                self._wake(number, now_ns)
                return
            self._push(end_ns, _Event.RESULT, number)

    def _wake(self, number: int, now_ns: int) -> None:
        """Once for each time asked for: every submit asks again while a batch forms."""
        wake_ns = self._drivers[number].wake_ns
        if wake_ns is not None and wake_ns != self._wakes_ns[number]:
            self._wakes_ns[number] = wake_ns
            self._push(max(wake_ns, now_ns + 1), _Event.WAKE, number)

    def _expire(self, driver: SimulatedDriver, now_ns: int) -> None:
        for request in driver.rejected:
            request.observation.status = "DEADLINE_EXCEEDED"
            self._end(request, now_ns)
        driver.rejected.clear()

    def _on_result(self, number: int, now_ns: int) -> None:
        driver = self._drivers[number]
        outcome = driver.take_result()
        deliver_ns = now_ns + self.service.overheads.deliver_ns
        for row in outcome.rows:
            self._deliver(driver, row, deliver_ns)
        for request_id in outcome.requeues:
            self._queue.add(driver.requests.pop(request_id))
            self._tell_drivers()
        self._is_news[number] = True

    def _deliver(self, driver: SimulatedDriver, row: TokenRow, at_ns: int) -> None:
        request = driver.requests[row.request_id]
        observation, end = request.observation, row.end
        observation.token_ids.extend(row.token_ids)
        if row.num_cached_tokens >= 0:
            observation.num_cached_tokens = row.num_cached_tokens
        num_tokens = len(row.token_ids)
        if end is not None and end.reason is FinishReason.STOP_TOKEN:
            num_tokens -= 1  # clients do not see it
        if num_tokens and request.batch is None:
            observation.arrivals.append((at_ns / 1e9, num_tokens))
        if end is None:
            return
        del driver.requests[row.request_id]
        if end.reason is FinishReason.ERROR:
            observation.status = "INTERNAL"
        if request.batch is None:
            self._end(request, at_ns)
        else:
            self._end_member(request, at_ns)

    def _end_member(self, request: SimulatedRequest, at_ns: int) -> None:
        """Answers of the batch leave when its last member has ended."""
        batch = request.batch
        assert batch is not None
        batch.ended.append(request)
        batch.num_running -= 1
        if batch.num_running:
            return
        for member in batch.ended:
            ids = member.observation.token_ids
            num_tokens = len(ids) - (ids[-1:] == [STOP_ID])
            if num_tokens:
                member.observation.arrivals.append((at_ns / 1e9, num_tokens))
            self._end(member, at_ns)


def _tell_nobody(_: Observation) -> None:
    return None
