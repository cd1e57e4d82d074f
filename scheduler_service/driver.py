"""One worker's loop: read, decide, send, commit; one step ahead.

Ordinary async code over an injected link, store and the loop's clock (I12): holds no decision of
its own. Commits run beside the steps (`committer.py`): results are applied to the view at once, so
that the next plan can leave; tokens are delivered only after their commit.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from scheduler_service.batching import Batching, is_held, running_batch_of
from scheduler_service.claiming import Claiming
from scheduler_service.committer import CommitListener, Committer
from scheduler_service.driver_requests import DriverRequests
from scheduler_service.driver_values import (
    DriverContext,
    StepTotals,
    WorkerLink,
    capacity_of,
    waiting_request,
)
from scheduler_service.planning.live import Admissible, Ending
from scheduler_service.planning.results import StepOutcome
from scheduler_service.planning.snapshot import Decision
from scheduler_service.planning.view import DriverView
from scheduler_service.repair import Continuity
from scheduler_service.step_making import StepMaking
from scheduler_service.store.values import BatchStart, CommitRow, DriverReply, Fence
from scheduler_service.store_poll import Repair, StorePoll
from scheduler_service.worker_stream import WorkerStream
from shared.errors import StaleFence, StoreUnavailable, WorkerLost
from shared.types import (
    DRAINING,
    DriverHeartbeat,
    Fenced,
    PlanRefused,
    Replay,
    Resident,
    StepResult,
    WorkerDescription,
    WorkerHeartbeat,
    Yield,
)


class Driver:
    """Drives one worker over one stream; over when the stream is."""

    def __init__(
        self, link: WorkerLink, description: WorkerDescription, context: DriverContext
    ) -> None:
        self._stream = WorkerStream(link, context.settings.worker_silence_s)
        self._context = context
        self._capacity = capacity_of(description)
        self._settings = context.settings
        self._store = context.store
        text_stops = context.open_text_stops()
        batching = Batching(context.limits_of(description), context.strategy)
        self._view = DriverView(
            limits=batching.limits,
            block_size=description.block_size,
            find_text_stop=text_stops.find,
            max_model_tokens=description.max_model_tokens,
        )
        live = self._view.sequences
        self._requests = DriverRequests(text_stops, context.read_spec, live)
        self._steps = StepMaking(context, description, self._view, batching)
        self._committer = Committer(
            store=context.store,
            settings=context.settings,
            listener=CommitListener(
                durable=context.committed,
                refused=self._on_refused,
                replied=self._on_reply,
                output_of=live.output_of,
                rolled_back=self._on_rollback,
            ),
            clock_ns=context.clock_ns,
            fence=Fence(description.incarnation, 0),
        )
        self._poll = StorePoll(
            context,
            self._committer,
            capacity=self._capacity,
            replied=self._on_reply,
            is_live=live.goes_on,
            repair=Repair(presented=self._requests.presented, refused=self._on_refused),
        )
        self._claiming = Claiming(
            context.store,
            self._committer,
            replied=self._on_reply,
            doubted=self._poll.doubt_claims,
            rolled_back=self._on_rollback,
        )
        self._continuity = Continuity()
        self._wake = asyncio.Event()
        self._wait_ms: int | None = None  # replan after so long, though nothing happens
        self._yield_reason: str | None = None
        self._is_worker_leaving = False
        self._num_running = 0
        self._last_step_id = 0  # of the last result

    @property
    def totals(self) -> StepTotals:
        totals = replace(self._steps.totals)
        totals.num_commits = self._committer.num_commits
        totals.commit_ns = self._committer.commit_ns
        return totals

    @property
    def _fence(self) -> Fence:
        return self._committer.fence

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Drive until the worker or the store says that it is over. Returns why."""
        try:
            await self._attach()
            async with asyncio.TaskGroup() as tasks:
                for part in (
                    self._receive,
                    self._committer.run,
                    self._plan,
                    self._beat,
                    self._poll.run,
                ):
                    tasks.create_task(part())
        except* (WorkerLost, StaleFence) as group:
            reason = str(group.exceptions[0])
        else:
            reason = "ended"
        finally:
            self._stream.close()
        return reason

    def give_up(self, reason: str) -> None:
        """Yield the worker at the next chance; results under way are still committed."""
        self._yield_reason = reason
        self._wake.set()

    def ring(self) -> None:
        """A hint: the store has news."""
        self._poll.ring()

    def doubt_store(self) -> None:
        """It may have lost writes: tell it again what runs here."""
        self._poll.repair()

    async def _attach(self) -> None:
        resident = await self._stream.hello(self._context.replica_id)
        self._committer.fence = Fence(resident.incarnation, resident.epoch)
        try:
            attached = await self._store.attach_driver(
                self._fence, self._context.replica_id, self._capacity
            )
        except StaleFence:
            await self._stream.send(Yield(reason="stale fence", forget=True))
            raise
        except StoreUnavailable as error:
            await self._stream.send(Yield(reason="store unavailable"))
            raise WorkerLost(f"the store is away: {error}") from error
        batches = [running_batch_of(record, attached.running) for record in attached.batches]
        held = {batch.batch_id for batch in batches if is_held(batch.settings)}
        records = [self._requests.take(r, is_held=r.batch_id in held) for r in attached.running]
        outcome = self._view.attach(resident, records, batches)
        self._committer.durable_step = resident.last_step_id
        self._on_reply(attached.reply)
        self._put(resident.last_step_id, outcome)

    # -- worker ------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            match message := await self._stream.receive():
                case StepResult():
                    self._on_result(message)
                case Replay() if message.result.step_id > self._last_step_id:
                    self._on_result(message.result)
                case Replay() | WorkerHeartbeat():
                    continue  # a plan that arrived there twice: its result has come long ago
                case Fenced():
                    self._on_fenced(message.reason)
                case PlanRefused() | Resident():
                    raise WorkerLost(f"out of step with the worker: {message}")

    def _on_fenced(self, reason: str) -> None:
        if reason != DRAINING:
            raise WorkerLost(f"fenced: {reason}")
        self._is_worker_leaving = True
        self.give_up("the worker drains")

    def _on_result(self, result: StepResult) -> None:
        outcome = self._steps.finish(result)
        self._last_step_id = result.step_id
        self._put(result.step_id, outcome)
        self._wake.set()

    # -- planning ----------------------------------------------------------------------------------

    async def _plan(self) -> None:
        while True:
            self._wake.clear()
            is_at_rest = self._is_worker_leaving or not self._view.num_in_flight
            if self._yield_reason is not None and is_at_rest:
                await self._finish_yield()
            if not self._may_plan() or not await self._plan_once():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._wait_ms and self._wait_ms / 1e3):
                        await self._wake.wait()

    def _may_plan(self) -> bool:
        return (
            self._yield_reason is None
            and self._view.num_in_flight < self._settings.max_plans_in_flight
            and self._committer.num_uncommitted < self._settings.max_uncommitted_steps
        )

    async def _finish_yield(self) -> None:
        while self._committer.num_uncommitted and not self._committer.is_store_down:
            self._wake.clear()
            await self._wake.wait()
        if self._is_worker_leaving and not self._committer.is_store_down:
            # What ran there goes on elsewhere at once; its outputs are all in the log.
            with contextlib.suppress(StoreUnavailable):
                await self._store.detach_worker(self._fence)
        await self._stream.send(Yield(reason=self._yield_reason or ""))
        raise WorkerLost(f"yielded: {self._yield_reason}")

    async def _plan_once(self) -> bool:
        """False: there was nothing to send."""
        decided = self._steps.decide(self._fence)
        decision = decided.decision
        self._wait_ms = decision.wait_ms
        await self._claiming.reject(decision)
        claimed = await self._claim(decision, decided.start)
        if decided.is_idle(claimed) and not self._view.has_releases:
            return False
        plan = self._steps.make_plan(
            decided,
            claimed,
            epoch=self._fence.epoch,
            durable_step=self._committer.durable_step,
            num_running=self._num_running,
        )
        await self._stream.send(plan)
        return True

    async def _claim(self, decision: Decision, start: BatchStart | None) -> list[Admissible]:
        claimed = await self._claiming.claim(decision, start)
        is_held = start is None or start.is_held
        to_run, ended = self._requests.take_claimed(claimed, is_held=is_held)
        self._put_at_once(ended)
        return to_run

    # -- store -------------------------------------------------------------------------------------

    def _put(self, step_id: int, outcome: StepOutcome) -> None:
        self._requests.let_go(outcome.requeues)
        self._committer.put(step_id, self._requests.rows(outcome.rows), outcome.requeues)

    def _put_at_once(self, rows: Sequence[CommitRow]) -> None:
        """Rows that no step has made."""
        if rows:
            self._committer.put(self._committer.durable_step, rows)

    def _on_refused(self, request_id: str) -> None:
        self._view.end(request_id, Ending.STALE)
        self._requests.let_go([request_id])

    def _on_rollback(self) -> None:
        self._poll.repair()

    def _on_reply(self, reply: DriverReply) -> None:
        if self._continuity.is_broken_by(reply.marker, reply.write_counter):
            self._on_rollback()
        window = reply.window
        entries = map(waiting_request, window.entries)
        self._view.waiting.see(entries, window.num_waiting, window.num_unfit, self._steps.now_ms())
        self._num_running = window.num_running
        cancelled = zip(reply.cancelled_ids, reply.cancel_reasons, strict=True)
        ends = [self._view.cancel(request_id, reason) for request_id, reason in cancelled]
        self._put_at_once(self._requests.rows(end for end in ends if end is not None))
        self._wake.set()

    # -- liveness ----------------------------------------------------------------------------------

    async def _beat(self) -> None:
        committer = self._committer
        num_commits = -1
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            await self._stream.send(DriverHeartbeat(durable_step=committer.durable_step))
            if num_commits == committer.num_commits and not committer.num_uncommitted:
                # Commits raise the worker's beat in the store; without any, say that it lives.
                committer.put(committer.durable_step, (), is_beat=True)
            num_commits = committer.num_commits
