"""Who drives this worker, and which plan runs next: the worker is the lock.

Ordinary async code over injected links, an injected compute and the loop's clock (I12).
Knows nothing of grpc, threads, torch or wall time.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from shared.errors import MalformedMessage
from shared.types import (
    DRAINING,
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    BatchPlan,
    DriverHeartbeat,
    Fenced,
    Hello,
    PlanRefused,
    Replay,
    Resident,
    StepResult,
    WorkerDescription,
    WorkerHeartbeat,
    WorkerStats,
    Yield,
)
from worker_service.driver_stream import DriverLink, DriverStream
from worker_service.outbox import Outbox
from worker_service.session_values import Compute, SessionLimits

HUNG_FACTOR = 10  # times what a plan predicted


class WorkerSession:
    def __init__(
        self,
        description: WorkerDescription,
        compute: Compute,
        *,
        draw_incarnation: Callable[[], str],
        limits: SessionLimits | None = None,
    ) -> None:
        self.description = description
        self._compute = compute
        self._draw_incarnation = draw_incarnation
        self._limits = limits or SessionLimits()
        self._epoch = 0
        self._driver: DriverStream | None = None
        self._plans: deque[BatchPlan] = deque()
        self._plan_came = asyncio.Event()
        self._boundary = asyncio.Lock()  # held while a step runs, and while the driver changes
        self._last_accepted_step = 0
        self._last_step = 0
        self._running_step = 0
        self._running_since_s = 0.0
        self._running_limit_s = 0.0
        self._ended_s: float | None = None
        self._outbox = Outbox()
        self._is_draining = False
        self._unfinished: set[int] = set()
        self._num_steps = 0
        self._num_sampled_tokens = 0
        self._driver_changed = asyncio.Event()
        self._last_blocks = compute.blocks()

    # -- steps ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Execute accepted plans, one after the other, for as long as the worker lives."""
        while True:
            while not self._plans:
                self._plan_came.clear()
                await self._plan_came.wait()
            async with self._boundary:
                if self._plans:
                    await self._run_step(self._plans.popleft())

    async def wait_hung(self) -> str:
        """Returns when a step will never end, with what to say of it. A long step is not one."""
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            if not self._running_step:
                continue
            age_s = asyncio.get_running_loop().time() - self._running_since_s
            if age_s > self._running_limit_s:
                return f"step {self._running_step} has run for {age_s:.0f} s"

    async def drain(self) -> None:
        """Begin no step any more, and have the driver give what runs here to others.

        Returns when it has let go; the caller bounds how long that may take.
        """
        self._is_draining = True
        async with self._boundary:
            self._plans.clear()
            driver = self._driver
            if driver is not None:
                driver.post(Fenced(reason=DRAINING, epoch=self._epoch))
        while driver is not None and self._driver is driver:
            await asyncio.sleep(0.01)

    async def _run_step(self, plan: BatchPlan) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        idle_s = 0.0 if self._ended_s is None else started_s - self._ended_s
        idle_with_work = bool(self._unfinished)
        self._running_step, self._running_since_s = plan.step_id, started_s
        self._running_limit_s = max(self._limits.hung_s, HUNG_FACTOR * plan.predicted_ns / 1e9)
        try:
            result = await self._compute.execute(plan)
        finally:
            self._running_step = 0
            self._ended_s = loop.time()
        timings = replace(result.timings, idle_ns=int(idle_s * 1e9))
        result = replace(result, timings=timings, idle_with_work=idle_with_work)
        self._account(plan, result)
        if self._driver is not None:
            self._driver.post(result)

    def _account(self, plan: BatchPlan, result: StepResult) -> None:
        self._last_step = plan.step_id
        self._outbox.put(result)
        self._last_blocks = result.blocks
        self._num_steps += 1
        self._unfinished.difference_update(r.handle for r in plan.releases)
        refused = {r.handle for r in result.refusals}
        self._unfinished.update(a.handle for a in plan.admissions if a.handle not in refused)
        for row in result.rows:
            self._num_sampled_tokens += len(row.sampled_ids)
            if row.finish is not None:
                self._unfinished.discard(row.handle)

    # -- drivers -------------------------------------------------------------------------------

    async def drive(self, link: DriverLink) -> None:
        """Serve one driver's stream until it ends. The first message must be a Hello."""
        try:
            hello = await link.receive()
        except MalformedMessage:
            hello = None
        if not isinstance(hello, Hello):
            await self._refuse(link, Fenced(reason="no_hello"))
            return
        if hello.protocol_max < PROTOCOL_MIN or hello.protocol_min > PROTOCOL_MAX:
            await self._refuse(link, Fenced(reason="protocol"))
            return
        if self._is_draining:
            await self._refuse(link, Fenced(reason=DRAINING, epoch=self._epoch))
            return
        now_s = asyncio.get_running_loop().time()
        driver = DriverStream(link, hello.replica_id, now_s, self._limits.max_outgoing)
        sending = asyncio.create_task(driver.send_posted())
        beating = asyncio.create_task(self._beat(driver))
        try:
            if await self._grant(driver):
                await self._serve(driver)
        finally:
            driver.is_broken = True
            if self._driver is driver:
                self._drop_driver()
            driver.post_end()
            # Let a last word (Fenced) leave, and never end the stream in the middle of a write.
            await asyncio.wait((sending,), timeout=self._limits.last_word_s)
            for task in (sending, beating):
                task.cancel()
            await asyncio.gather(sending, beating, return_exceptions=True)

    async def _refuse(self, link: DriverLink, fenced: Fenced) -> None:
        try:
            await link.send(fenced)
        except ConnectionError:
            return

    async def _grant(self, driver: DriverStream) -> bool:
        async with self._boundary:
            present = self._driver
            if present is not None and not self._may_replace(present, driver):
                fenced = Fenced(
                    reason="driven_by_other", driver=present.replica_id, epoch=self._epoch
                )
                driver.post(fenced)
                return False
            self._epoch += 1
            if present is not None:
                present.post(
                    Fenced(reason="newer_epoch", driver=driver.replica_id, epoch=self._epoch)
                )
            self._plans.clear()
            self._last_accepted_step = self._last_step
            self._driver = driver
            driver.heard_s = asyncio.get_running_loop().time()
            driver.post(self._resident())
            return True

    def _may_replace(self, present: DriverStream, candidate: DriverStream) -> bool:
        silent_s = asyncio.get_running_loop().time() - present.heard_s
        return (
            present.is_broken
            or present.replica_id == candidate.replica_id
            or silent_s >= self._limits.silence_s
        )

    def _resident(self) -> Resident:
        return Resident(
            incarnation=self.description.incarnation,
            epoch=self._epoch,
            last_step_id=self._last_step,
            sequences=self._compute.resident(),
            blocks=self._compute.blocks(),
        )

    async def _serve(self, driver: DriverStream) -> None:
        while self._driver is driver and not driver.is_broken:
            try:
                message = await driver.link.receive()
            except MalformedMessage as error:
                expected = self._last_accepted_step + 1
                driver.post(
                    PlanRefused(
                        step_id=expected,
                        reason="malformed",
                        detail=str(error),
                        expected_step_id=expected,
                    )
                )
                continue
            if message is None or self._driver is not driver:
                return
            driver.heard_s = asyncio.get_running_loop().time()
            match message:
                case BatchPlan():
                    self._accept(driver, message)
                case DriverHeartbeat():
                    self._outbox.forget_up_to(message.durable_step)
                case Yield():
                    await self._give_up(driver, message)
                    return
                case Hello():
                    driver.post(Fenced(reason="second_hello", epoch=self._epoch))
                    return

    def _accept(self, driver: DriverStream, plan: BatchPlan) -> None:
        """Queue a plan, answer a repeated one with its result, or refuse it whole."""
        if self._is_draining:
            return  # its driver knows, or is about to
        expected = self._last_accepted_step + 1
        refusal = ""
        if plan.epoch != self._epoch:
            refusal = "stale_epoch"
        elif plan.step_id > expected:
            refusal = "gap"
        elif plan.step_id < expected:
            self._repeat(driver, plan)
            return
        elif len(self._plans) + bool(self._running_step) >= self._limits.max_plans_in_flight:
            refusal = "too_many_in_flight"
        if refusal:
            driver.post(
                PlanRefused(step_id=plan.step_id, reason=refusal, expected_step_id=expected)
            )
            return
        self._outbox.forget_up_to(plan.durable_step)
        self._last_accepted_step = plan.step_id
        self._plans.append(plan)
        self._plan_came.set()

    def _repeat(self, driver: DriverStream, plan: BatchPlan) -> None:
        if plan.step_id > self._last_step:
            return  # it waits or runs: its result is on the way
        result = self._outbox.get(plan.step_id)
        if result is None:
            driver.post(
                PlanRefused(
                    step_id=plan.step_id,
                    reason="durable_already",
                    expected_step_id=self._last_accepted_step + 1,
                )
            )
        else:
            driver.post(Replay(result=result))

    async def _give_up(self, driver: DriverStream, message: Yield) -> None:
        async with self._boundary:
            if self._driver is not driver:
                return
            self._drop_driver()
            driver.post(Fenced(reason="yielded", epoch=self._epoch))
            if message.forget:
                self._start_anew()

    def _drop_driver(self) -> None:
        self._driver = None
        self._plans.clear()
        changed, self._driver_changed = self._driver_changed, asyncio.Event()
        changed.set()

    def _start_anew(self) -> None:
        self._compute.forget_all()
        self._outbox = Outbox()
        self._unfinished.clear()
        self._last_blocks = self._compute.blocks()
        self._epoch = self._last_step = self._last_accepted_step = 0
        self.description = replace(self.description, incarnation=self._draw_incarnation())

    async def _beat(self, driver: DriverStream) -> None:
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            driver.post(
                WorkerHeartbeat(
                    last_step_id=self._last_step,
                    running_step_id=self._running_step,
                    running_step_age_ms=self._running_age_ms(),
                )
            )

    # -- stats ---------------------------------------------------------------------------------

    async def wait_stats(self, interval_s: float) -> None:
        """Until it is time for the next ones: at once when nobody drives any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await self._driver_changed.wait()

    def _running_age_ms(self) -> int:
        if not self._running_step:
            return 0
        return int((asyncio.get_running_loop().time() - self._running_since_s) * 1e3)

    def stats(self) -> WorkerStats:
        driver = self._driver
        is_driven = driver is not None and not driver.is_broken and not self._is_silent(driver)
        return WorkerStats(
            incarnation=self.description.incarnation,
            epoch=self._epoch,
            driver=driver.replica_id if driver is not None and is_driven else "",
            last_step_id=self._last_step,
            running_step_id=self._running_step,
            running_step_age_ms=self._running_age_ms(),
            num_sequences=len(self._unfinished),
            blocks=self._last_blocks,
            memory=self._compute.memory(),
            num_steps=self._num_steps,
            num_sampled_tokens=self._num_sampled_tokens,
        )

    def _is_silent(self, driver: DriverStream) -> bool:
        return asyncio.get_running_loop().time() - driver.heard_s >= self._limits.silence_s
