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
    BatchPlan,
    DriverHeartbeat,
    Fenced,
    Hello,
    PlanRefused,
    Replay,
    Resident,
    WorkerDescription,
    WorkerStats,
    Yield,
)
from worker_service.driver_stream import DriverLink, DriverStream, read_hello, say_last
from worker_service.outbox import Outbox
from worker_service.session_values import Compute, SessionLimits
from worker_service.step_account import StepAccount

REPLACE_S = 1.5  # within so long another replica takes the place of a driver that hangs


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
        self._steps = StepAccount(compute.blocks())
        self._outbox = Outbox()
        self._is_draining = False
        self._driver_changed = asyncio.Event()

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
            if hung := self._steps.running_too_long(_now_s()):
                return hung

    async def drain(self) -> None:
        """Begin no step any more, and have the driver give what runs here to others.

        Returns when it has let go. One that hangs may be replaced for that; where nobody does, whoever finds this
        worker gone goes on. The caller bounds how long that may take.
        """
        self._is_draining = True
        async with self._boundary:
            self._plans.clear()
            if self._driver is not None:
                self._driver.post(Fenced(reason=DRAINING, epoch=self._epoch))
        while self._driver is not None and not self._is_silent(self._driver, REPLACE_S):
            await asyncio.sleep(0.01)

    async def _run_step(self, plan: BatchPlan) -> None:
        self._steps.begin(plan, _now_s(), self._limits.hung_s)
        try:
            result = await self._compute.execute(plan)
        finally:
            self._steps.end(_now_s())
        result = self._steps.count(plan, result)
        self._outbox.put(result)
        if self._driver is not None:
            self._driver.post(result)

    # -- drivers -------------------------------------------------------------------------------

    async def drive(self, link: DriverLink) -> None:
        """Serve one driver's stream until it ends. The first message must be a Hello."""
        hello = await read_hello(link)
        if isinstance(hello, Fenced):
            await say_last(link, hello)
            return
        if self._is_draining and (self._driver is None or not self._is_silent(self._driver)):
            await say_last(link, Fenced(reason=DRAINING, epoch=self._epoch))
            return
        now_s = _now_s()
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
            self._last_accepted_step = self._steps.last_step_id
            self._driver = driver
            driver.heard_s = _now_s()
            driver.post(self._resident())
            if self._is_draining:
                driver.post(Fenced(reason=DRAINING, epoch=self._epoch))
            return True

    def _may_replace(self, present: DriverStream, candidate: DriverStream) -> bool:
        is_same = present.replica_id == candidate.replica_id
        return present.is_broken or is_same or self._is_silent(present)

    def _resident(self) -> Resident:
        return Resident(
            incarnation=self.description.incarnation,
            epoch=self._epoch,
            last_step_id=self._steps.last_step_id,
            sequences=self._compute.resident(),
            blocks=self._compute.blocks(),
        )

    async def _serve(self, driver: DriverStream) -> None:
        while self._driver is driver and not driver.is_broken:
            try:
                message = await driver.link.receive()
            except MalformedMessage as error:
                self._refuse_plan(driver, self._expected_step, "malformed", str(error))
                continue
            if message is None or self._driver is not driver:
                return
            driver.heard_s = _now_s()
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
        num_plans = len(self._plans) + bool(self._steps.running_step_id)
        refusal = ""
        if plan.epoch != self._epoch:
            refusal = "stale_epoch"
        elif plan.step_id > self._expected_step:
            refusal = "gap"
        elif plan.step_id < self._expected_step:
            self._repeat(driver, plan)
            return
        elif num_plans >= self._limits.max_plans_in_flight:
            refusal = "too_many_in_flight"
        if refusal:
            self._refuse_plan(driver, plan.step_id, refusal)
            return
        self._outbox.forget_up_to(plan.durable_step)
        self._last_accepted_step = plan.step_id
        self._plans.append(plan)
        self._plan_came.set()

    @property
    def _expected_step(self) -> int:
        return self._last_accepted_step + 1

    def _refuse_plan(self, driver: DriverStream, step_id: int, why: str, detail: str = "") -> None:
        expected = self._expected_step
        driver.post(
            PlanRefused(step_id=step_id, reason=why, detail=detail, expected_step_id=expected)
        )

    def _repeat(self, driver: DriverStream, plan: BatchPlan) -> None:
        if plan.step_id > self._steps.last_step_id:
            return  # it waits or runs: its result is on the way
        result = self._outbox.get(plan.step_id)
        if result is None:
            self._refuse_plan(driver, plan.step_id, "durable_already")
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
        self._steps.start_anew(self._compute.blocks())
        self._epoch = self._last_accepted_step = 0
        self.description = replace(self.description, incarnation=self._draw_incarnation())

    async def _beat(self, driver: DriverStream) -> None:
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            driver.post(self._steps.heartbeat(_now_s()))

    # -- stats ---------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """It drains, and nobody drives it: there is nothing more to say of it."""
        return self._is_draining and self._driver is None

    async def wait_stats(self, interval_s: float) -> None:
        """Until it is time for the next ones: at once when nobody drives any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await self._driver_changed.wait()

    def stats(self) -> WorkerStats:
        driver = self._driver
        is_driven = driver is not None and not driver.is_broken and not self._is_silent(driver)
        return WorkerStats(
            incarnation=self.description.incarnation,
            epoch=self._epoch,
            driver=driver.replica_id if driver is not None and is_driven else "",
            last_step_id=self._steps.last_step_id,
            running_step_id=self._steps.running_step_id,
            running_step_age_ms=self._steps.running_age_ms(_now_s()),
            num_sequences=self._steps.num_unfinished,
            blocks=self._steps.last_blocks,
            memory=self._compute.memory(),
            num_steps=self._steps.num_steps,
            num_sampled_tokens=self._steps.num_sampled_tokens,
        )

    def _is_silent(self, driver: DriverStream, for_s_more: float = 0.0) -> bool:
        return _now_s() - driver.heard_s >= self._limits.silence_s + for_s_more


def _now_s() -> float:
    return asyncio.get_running_loop().time()
