"""One worker's loop: read, decide, send, commit; one step ahead (design.md sections 4 and 6).

Ordinary async code over an injected link, store and the loop's clock (I12): holds no decision of its own.
Commits run beside the steps: results are applied to the view at once, so that the next plan can leave,
and reach the store in order; tokens are delivered only after their commit.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduler_service.driver_values import (
    DriverSettings,
    StepNote,
    StepTotals,
    admissible,
    commit_row,
    waiting_request,
)
from scheduler_service.planning.live import Admissible, Ending
from scheduler_service.planning.outcome import TokenRow
from scheduler_service.planning.planner import plan_step
from scheduler_service.planning.snapshot import Decision, Limits
from scheduler_service.planning.strategies.interface import Strategy
from scheduler_service.planning.results import StepOutcome, TextStopFinder
from scheduler_service.planning.view import DriverView
from scheduler_service.store.interface import (
    CommitRow,
    DriverReply,
    Fence,
    RequestStore,
    RowStatus,
)
from shared.errors import StaleFence, StoreUnavailable, WorkerLost
from shared.link import Link
from shared.types import (
    BatchPlan,
    DriverHeartbeat,
    DriverMessage,
    Fenced,
    Hello,
    PlanRefused,
    Replay,
    Resident,
    StepResult,
    WorkerDescription,
    WorkerHeartbeat,
    WorkerMessage,
    Yield,
)

WorkerLink = Link[DriverMessage, WorkerMessage]


class TextStops(Protocol):
    """Finds stop strings in the output of the requests that have any."""

    def open(self, record: Admissible, stop_strings: tuple[str, ...]) -> None: ...
    def close(self, request_id: str) -> None: ...

    @property
    def find(self) -> TextStopFinder: ...


class Committed(Protocol):
    """Told of rows that are durable: local streams need not read them back."""

    def __call__(self, rows: Sequence[CommitRow]) -> None: ...


@dataclass(slots=True)
class _Batch:
    """What one result brought for the store: rows, then requeues."""

    step_id: int
    rows: list[CommitRow] = field(default_factory=list)
    requeues: list[str] = field(default_factory=list)
    is_beat: bool = False  # commit even without rows


class Driver:
    def __init__(
        self,
        *,
        link: WorkerLink,
        store: RequestStore,
        description: WorkerDescription,
        replica_id: str,
        limits: Limits,
        settings: DriverSettings,
        strategy: Callable[[], Strategy],
        text_stops: TextStops,
        committed: Committed,
        record_step: Callable[[StepNote], None],
        clock_ns: Callable[[], int],
    ) -> None:
        self._link = link
        self._store = store
        self._replica_id = replica_id
        self._description = description
        self._settings = settings
        self._strategy = strategy
        self._text_stops = text_stops
        self._committed = committed
        self._record_step = record_step
        self._clock_ns = clock_ns
        self._view = DriverView(
            limits=limits,
            block_size=description.block_size,
            find_text_stop=text_stops.find,
            max_model_tokens=description.max_model_tokens,
        )
        self._fence = Fence(description.incarnation, 0)
        self._wake = asyncio.Event()
        self._commit_wake = asyncio.Event()
        self._poll_wake = asyncio.Event()
        self._batches: deque[_Batch] = deque()
        self._num_uncommitted = 0
        self._committing: set[str] = set()
        self._durable_step = 0
        self._heard_s = 0.0
        self._yield_reason: str | None = None
        self._is_store_down = False
        self._must_reconcile = False
        self._notes: deque[StepNote] = deque()
        self.totals = StepTotals()
        self.num_running = 0

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Drive until the worker or the store says that it is over. Returns why."""
        try:
            await self._attach()
            async with asyncio.TaskGroup() as tasks:
                for part in (self._receive, self._commit, self._plan, self._beat, self._poll):
                    tasks.create_task(part())
        except* (WorkerLost, StaleFence) as group:
            reason = str(group.exceptions[0])
        else:
            reason = "ended"
        finally:
            self._link.close()
        return reason

    def give_up(self, reason: str) -> None:
        """Yield the worker at the next chance; results under way are still committed."""
        self._yield_reason = reason
        self._wake.set()

    def ring(self) -> None:
        """A hint: the store has news."""
        self._poll_wake.set()

    async def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        await self._send(Hello(replica_id=self._replica_id))
        resident = await self._wait_resident()
        self._heard_s = loop.time()
        self._fence = Fence(resident.incarnation, resident.epoch)
        try:
            attached = await self._store.attach_driver(self._fence, self._replica_id)
        except StaleFence:
            await self._send(Yield(reason="stale fence", forget=True))
            raise
        except StoreUnavailable as error:
            await self._send(Yield(reason="store unavailable"))
            raise WorkerLost(f"the store is away: {error}") from error
        records = [self._admissible(record) for record in attached.running]
        outcome = self._view.attach(resident, records)
        self._durable_step = resident.last_step_id
        self._take_reply(attached.reply)
        self._queue_outcome(resident.last_step_id, outcome)

    async def _wait_resident(self) -> Resident:
        while True:
            message = await self._link.receive()
            if isinstance(message, Resident):
                return message
            if isinstance(message, WorkerHeartbeat):
                continue  # a long step is running; the answer comes at its end
            raise WorkerLost(f"no grant: {message}")

    async def _send(self, message: DriverMessage) -> None:
        try:
            await self._link.send(message)
        except ConnectionError as error:
            raise WorkerLost(str(error)) from error

    # -- worker ------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(self._settings.worker_silence_s):
                    message = await self._link.receive()
            except TimeoutError as error:
                raise WorkerLost("silent") from error
            self._heard_s = loop.time()
            match message:
                case StepResult() | Replay():
                    self._on_result(message if isinstance(message, StepResult) else message.result)
                case WorkerHeartbeat():
                    continue
                case PlanRefused():
                    raise WorkerLost(f"plan refused: {message}")
                case Fenced():
                    raise WorkerLost(f"fenced: {message.reason}")
                case None:
                    raise WorkerLost("the stream broke")
                case Resident():
                    raise WorkerLost("a second resident")

    def _on_result(self, result: StepResult) -> None:
        outcome = self._view.apply_result(result)
        self._count(result, outcome)
        note = self._notes.popleft()
        self._record_step(note.finished(result, outcome.num_sampled_tokens))
        self._queue_outcome(result.step_id, outcome)
        self._wake.set()

    def _count(self, result: StepResult, outcome: StepOutcome) -> None:
        totals = self.totals
        totals.num_steps += 1
        totals.num_prompt_tokens += outcome.num_prompt_tokens
        totals.num_recomputed_tokens += outcome.num_recomputed_tokens
        totals.num_cached_tokens += outcome.num_cached_tokens
        totals.num_sampled_tokens += outcome.num_sampled_tokens
        step_ns = result.timings.total_ns
        totals.busy_ns += step_ns
        if result.idle_with_work:
            totals.bubble_ns += result.timings.idle_ns
        totals.batch_size_ns += len(result.rows) * step_ns
        totals.held_blocks_ns += result.blocks.held * step_ns

    # -- planning ----------------------------------------------------------------------------------

    async def _plan(self) -> None:
        while True:
            self._wake.clear()
            if self._yield_reason is not None and not self._view.num_in_flight:
                await self._finish_yield()
            if not self._may_plan() or not await self._plan_once():
                await self._wake.wait()

    def _may_plan(self) -> bool:
        return (
            self._yield_reason is None
            and self._view.num_in_flight < self._settings.max_plans_in_flight
            and self._num_uncommitted < self._settings.max_uncommitted_steps
        )

    async def _finish_yield(self) -> None:
        while self._num_uncommitted and not self._is_store_down:
            self._wake.clear()
            await self._wake.wait()
        await self._send(Yield(reason=self._yield_reason or ""))
        raise WorkerLost("yielded")

    async def _plan_once(self) -> bool:
        """False: there was nothing to send."""
        started_ns = self._clock_ns()
        strategy = self._strategy()
        decision = plan_step(self._view.snapshot(), strategy)
        plan_ns = self._clock_ns() - started_ns
        claimed = await self._claim(decision)
        is_idle = not (decision.chunks or claimed or decision.preemptions)
        if is_idle and not self._view.has_releases:
            return False
        started_ns = self._clock_ns()
        plan = self._view.make_plan(
            decision, claimed, epoch=self._fence.epoch, durable_step=self._durable_step
        )
        plan_ns += self._clock_ns() - started_ns
        self.totals.plan_ns += plan_ns
        self.totals.num_preemptions += len(decision.preemptions)
        self._notes.append(self._note(plan, decision, plan_ns))
        await self._send(plan)
        return True

    def _note(self, plan: BatchPlan, decision: Decision, plan_ns: int) -> StepNote:
        return StepNote.of_plan(
            plan,
            decision,
            view=self._view,
            description=self._description,
            num_running=self.num_running,
            plan_ns=plan_ns,
        )

    async def _claim(self, decision: Decision) -> list[Admissible]:
        if not decision.claims or self._is_store_down:
            return []
        request_ids = [claim.request_id for claim in decision.claims]
        try:
            outcome = await self._store.claim(self._fence, request_ids, decision.claim_at_least)
        except StoreUnavailable:
            # It may have been granted all the same: find out when the store is back.
            self._is_store_down = self._must_reconcile = True
            self._poll_wake.set()
            return []
        self._take_reply(outcome.reply)
        # An answer that got lost may have granted some before: those live here already.
        new = [r for r in outcome.claimed if self._view.live(r.request_id) is None]
        return [self._admissible(record) for record in new]

    def _admissible(self, record: object) -> Admissible:
        request, stop_strings = admissible(record)
        if stop_strings:
            self._text_stops.open(request, stop_strings)
        return request

    # -- store -------------------------------------------------------------------------------------

    def _queue_outcome(
        self, step_id: int, outcome: StepOutcome, *, is_beat: bool = False
    ) -> None:
        rows = [self._row(row) for row in outcome.rows]
        batch = _Batch(step_id, rows, outcome.requeues, is_beat)
        self._batches.append(batch)
        self._num_uncommitted += 1
        self._commit_wake.set()

    def _row(self, row: TokenRow) -> CommitRow:
        if row.end is not None:
            self._text_stops.close(row.request_id)
        return commit_row(row)

    async def _commit(self) -> None:
        while True:
            while not self._batches:
                self._commit_wake.clear()
                await self._commit_wake.wait()
            batches = self._take_batches()
            started_ns = self._clock_ns()
            rows = [row for batch in batches for row in batch.rows]
            requeues = [request_id for batch in batches for request_id in batch.requeues]
            self._committing = {row.request_id for row in rows}.union(requeues)
            if rows or any(batch.is_beat for batch in batches):
                await self._persist_commit(rows)
            if requeues:
                reply = await self._persist(
                    lambda ids=requeues: self._store.requeue(self._fence, ids)
                )
                self._take_reply(reply)
            if rows or requeues:
                self.totals.commit_ns += self._clock_ns() - started_ns
                self.totals.num_commits += 1
            self._committing = set()
            self._durable_step = max(self._durable_step, batches[-1].step_id)
            self._num_uncommitted -= len(batches)
            self._wake.set()

    def _take_batches(self) -> list[_Batch]:
        """All that waits, up to a batch with requeues: these follow its rows at once."""
        batches: list[_Batch] = []
        while self._batches:
            batches.append(self._batches.popleft())
            if batches[-1].requeues:
                break
        return batches

    async def _persist_commit(self, rows: list[CommitRow]) -> None:
        outcome = await self._persist(lambda: self._store.commit(self._fence, rows))
        durable: list[CommitRow] = []
        gaps: list[CommitRow] = []
        for row, status, length in zip(rows, outcome.statuses, outcome.lengths, strict=True):
            if status in (RowStatus.APPENDED, RowStatus.REPLAYED):
                durable.append(row)
            elif status == RowStatus.GAP:
                gaps.extend(self._from_length(row, length))
            else:
                self._view.end(row.request_id, Ending.STALE)
                self._text_stops.close(row.request_id)
        self._committed(durable)
        self._take_reply(outcome.reply)
        if gaps:
            await self._persist_commit(gaps)

    def _from_length(self, row: CommitRow, length: int) -> list[CommitRow]:
        """The log is shorter than this row's index: send all from there."""
        live = self._view.live(row.request_id)
        if live is None or length >= row.index:
            return []
        return [
            CommitRow(
                request_id=row.request_id,
                assignment=row.assignment,
                index=length,
                token_ids=tuple(live.output_ids[length : row.index]) + row.token_ids,
                finish=row.finish,
                visible_tokens=row.visible_tokens,
                visible_chars=row.visible_chars,
                stop_match=row.stop_match,
                error=row.error,
            )
        ]

    async def _persist(self, call: Callable[[], object]) -> object:
        """Repeat a call until the store has answered: every one of them may be repeated."""
        delay_s = self._settings.store_retry_s
        while True:
            try:
                result = await call()
            except StoreUnavailable:
                self._is_store_down = True
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, self._settings.max_store_retry_s)
            else:
                self._is_store_down = False
                return result

    def _take_reply(self, reply: DriverReply) -> None:
        window = reply.window
        self._view.see_window(
            (waiting_request(e, self._view.num_bypasses(e.request_id)) for e in window.entries),
            window.num_waiting,
        )
        self.num_running = window.num_running
        ended = [
            row
            for request_id, reason in zip(reply.cancelled_ids, reply.cancel_reasons, strict=True)
            if (row := self._view.cancel(request_id, reason)) is not None
        ]
        if ended:
            self._batches.append(_Batch(self._durable_step, [self._row(row) for row in ended]))
            self._num_uncommitted += 1
            self._commit_wake.set()
        self._wake.set()

    # -- liveness ----------------------------------------------------------------------------------

    async def _beat(self) -> None:
        num_commits = -1
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            await self._send(DriverHeartbeat(durable_step=self._durable_step))
            if num_commits == self.totals.num_commits and not self._num_uncommitted:
                # Commits raise the worker's beat in the store; without any, say that it lives.
                self._queue_outcome(self._durable_step, StepOutcome(), is_beat=True)
            num_commits = self.totals.num_commits

    async def _poll(self) -> None:
        """Doorbells are hints; the slow poll covers those that were lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_s):
                    await self._poll_wake.wait()
            self._poll_wake.clear()
            try:
                reply = await self._store.poll(self._fence)
            except StoreUnavailable:
                self._is_store_down = True
                await asyncio.sleep(self._settings.store_retry_s)
            else:
                self._is_store_down = False
                self._take_reply(reply)
                if self._must_reconcile:
                    await self._reconcile()

    async def _reconcile(self) -> None:
        """Requests that the store gave to this worker without our hearing of it go back."""
        try:
            attached = await self._store.attach_driver(self._fence, self._replica_id)
        except StoreUnavailable:
            return
        self._must_reconcile = False
        awaited = {row.request_id for batch in self._batches for row in batch.rows}
        awaited.update(request_id for batch in self._batches for request_id in batch.requeues)
        awaited.update(self._committing)
        lost = [
            record.request_id
            for record in attached.running
            if self._view.live(record.request_id) is None and record.request_id not in awaited
        ]
        if lost:
            self._batches.append(_Batch(self._durable_step, requeues=lost))
            self._num_uncommitted += 1
            self._commit_wake.set()
