"""The worker is the lock: who may drive, and which plans run."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from fake_worker import FakeWorker
from virtual_clock import VirtualClockLoop

from shared.errors import MalformedMessage
from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    DriverHeartbeat,
    Fenced,
    Hello,
    PlanRefused,
    Replay,
    Resident,
    SamplingParams,
    StepResult,
    StopRules,
    WorkerDescription,
    WorkerHeartbeat,
    Yield,
)
from worker_service.session import WorkerSession

STEP_S = 0.1


class SlowCompute(FakeWorker):
    """A fake engine whose steps take virtual time."""

    def __init__(self) -> None:
        super().__init__(num_blocks=32)
        self.step_s = STEP_S
        self.executed: list[int] = []

    async def execute(self, plan):
        self.executed.append(plan.step_id)
        await asyncio.sleep(self.step_s)
        return super().execute(plan)


@dataclass
class FakeLink:
    """The driver's end in the test's hands."""

    sent: list = field(default_factory=list)
    inbox: asyncio.Queue = field(default_factory=asyncio.Queue)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, message):
        self.sent.append(message)
        self.news.set()

    async def receive(self):
        message = await self.inbox.get()
        if isinstance(message, Exception):
            raise message
        return message

    def close(self):
        self.inbox.put_nowait(None)

    def say(self, *messages):
        for message in messages:
            self.inbox.put_nowait(message)

    def all(self, kind):
        return [m for m in self.sent if isinstance(m, kind)]

    async def wait_for(self, kind, count=1):
        async with asyncio.timeout(100):
            while len(self.all(kind)) < count:
                self.news.clear()
                await self.news.wait()
        return self.all(kind)[count - 1]


@dataclass
class Bench:
    session: WorkerSession
    compute: SlowCompute
    tasks: list = field(default_factory=list)

    def connect(self, replica_id="a", **hello):
        link = FakeLink()
        link.say(Hello(replica_id=replica_id, **hello))
        self.tasks.append(asyncio.create_task(self.session.drive(link)))
        return link


@asynccontextmanager
async def open_bench():
    description = WorkerDescription(
        incarnation="first",
        name="w",
        model="m",
        fingerprint="f",
        dtype="float32",
        device="none",
        block_size=16,
        num_blocks=32,
        max_model_tokens=512,
        logits_width=1000,
        eos_token_ids=(),
    )
    compute = SlowCompute()
    session = WorkerSession(description, compute, draw_incarnation=lambda: "second")
    made = Bench(session, compute)
    made.tasks.append(asyncio.create_task(session.run()))
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


def on_virtual_clock(test):
    """The test gets a bench, on a loop whose time is made up."""

    async def body():
        async with open_bench() as bench:
            await test(bench)

    def run():
        with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
            runner.run(body())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def make_plan(step_id, epoch=1, handle=0, **changes):
    admissions = ()
    if handle:
        admissions = (
            Admission(
                request_id=f"r{handle}",
                assignment=Assignment(1, 1),
                handle=handle,
                token_ids=(1, 2, 3),
                num_prompt_tokens=3,
                sampling=SamplingParams(),
                stop=StopRules(max_tokens=8),
            ),
        )
    values = {"epoch": epoch, "step_id": step_id, "admissions": admissions, **changes}
    return BatchPlan(**values)


@on_virtual_clock
async def test_hello_is_answered_with_what_is_resident(bench):
    link = bench.connect()

    resident = await link.wait_for(Resident)

    assert (resident.incarnation, resident.epoch, resident.last_step_id) == ("first", 1, 0)


@on_virtual_clock
async def test_a_second_driver_is_refused_while_the_first_is_heard(bench):
    first = bench.connect("a")
    await first.wait_for(Resident)

    second = bench.connect("b")
    fenced = await second.wait_for(Fenced)

    assert (fenced.reason, fenced.driver) == ("driven_by_other", "a")


@on_virtual_clock
async def test_a_silent_driver_is_replaced_and_told(bench):
    first = bench.connect("a")
    await first.wait_for(Resident)
    await asyncio.sleep(2.5)

    second = bench.connect("b")
    resident = await second.wait_for(Resident)
    fenced = await first.wait_for(Fenced)

    assert resident.epoch == 2
    assert fenced.reason == "newer_epoch"


@on_virtual_clock
async def test_heartbeats_keep_a_driver(bench):
    first = bench.connect("a")
    await first.wait_for(Resident)
    for _ in range(6):
        await asyncio.sleep(0.5)
        first.say(DriverHeartbeat())
    await asyncio.sleep(0.1)

    second = bench.connect("b")

    assert (await second.wait_for(Fenced)).reason == "driven_by_other"


@on_virtual_clock
async def test_a_broken_stream_frees_the_worker_at_once(bench):
    first = bench.connect("a")
    await first.wait_for(Resident)
    first.close()
    await asyncio.sleep(0.01)

    second = bench.connect("b")

    assert (await second.wait_for(Resident)).epoch == 2


@on_virtual_clock
async def test_an_unknown_protocol_is_refused(bench):
    link = bench.connect(protocol_min=99, protocol_max=100)

    assert (await link.wait_for(Fenced)).reason == "protocol"


@on_virtual_clock
async def test_a_gap_and_a_stale_epoch_are_refused_whole_and_consume_no_step_id(bench):
    link = bench.connect()
    await link.wait_for(Resident)

    link.say(make_plan(2, handle=1), make_plan(1, epoch=7, handle=1), make_plan(1, handle=1))
    result = await link.wait_for(StepResult)

    assert [r.reason for r in link.all(PlanRefused)] == ["gap", "stale_epoch"]
    assert result.step_id == 1
    assert bench.compute.executed == [1]


@on_virtual_clock
async def test_a_malformed_message_is_refused_and_the_stream_goes_on(bench):
    link = bench.connect()
    await link.wait_for(Resident)

    link.say(MalformedMessage("columns of unequal lengths"), make_plan(1))
    await link.wait_for(StepResult)

    assert link.all(PlanRefused)[0].reason == "malformed"


@on_virtual_clock
async def test_a_repeated_step_is_answered_with_the_same_result_and_not_executed(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    plan = make_plan(1, handle=1, chunks=(Chunk(1, 3),))
    link.say(plan)
    result = await link.wait_for(StepResult)

    link.say(plan)
    replay = await link.wait_for(Replay)

    assert replay.result == result
    assert bench.compute.executed == [1]


@on_virtual_clock
async def test_no_more_plans_than_allowed_are_taken_ahead(bench):
    link = bench.connect()
    await link.wait_for(Resident)

    link.say(make_plan(1))
    await asyncio.sleep(STEP_S / 2)  # it runs
    link.say(make_plan(2), make_plan(3))
    refused = await link.wait_for(PlanRefused)

    assert (refused.step_id, refused.reason) == (3, "too_many_in_flight")


@on_virtual_clock
async def test_a_takeover_drops_plans_not_begun_and_keeps_rows_of_the_running_one(bench):
    first = bench.connect("a")
    await first.wait_for(Resident)
    first.say(make_plan(1, handle=1, chunks=(Chunk(1, 3),)))
    await asyncio.sleep(STEP_S / 2)
    first.say(make_plan(2, chunks=(Chunk(1, 1),)))
    first.close()
    await asyncio.sleep(0.001)

    second = bench.connect("b")
    resident = await second.wait_for(Resident)

    assert resident.last_step_id == 1
    assert len(resident.sequences[0].output_ids) == 1
    await asyncio.sleep(1)
    assert bench.compute.executed == [1]


@on_virtual_clock
async def test_a_long_step_is_no_death_and_heartbeats_go_on(bench):
    bench.compute.step_s = 20.0
    link = bench.connect()
    await link.wait_for(Resident)
    link.say(make_plan(1, handle=1, chunks=(Chunk(1, 3),)))

    beat = await link.wait_for(WorkerHeartbeat, 10)

    assert beat.running_step_id == 1
    assert beat.running_step_age_ms > 4000
    assert (await link.wait_for(StepResult)).step_id == 1


@on_virtual_clock
async def test_a_worker_that_is_given_up_forgets_all_and_draws_a_new_incarnation(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    link.say(make_plan(1, handle=1, chunks=(Chunk(1, 3),)))
    await link.wait_for(StepResult)

    link.say(Yield(reason="tombstoned", forget=True))
    await link.wait_for(Fenced)
    resident = await bench.connect("b").wait_for(Resident)

    assert resident.incarnation == "second"
    assert resident.sequences == ()
    assert resident.blocks.held == 0


@on_virtual_clock
async def test_a_draining_worker_ends_its_step_says_so_and_waits_until_it_is_let_go(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    link.say(make_plan(1, handle=1, chunks=(Chunk(1, 3),)), make_plan(2, chunks=(Chunk(1, 1),)))
    await asyncio.sleep(STEP_S / 2)

    draining = asyncio.create_task(bench.session.drain())
    fenced = await link.wait_for(Fenced)
    link.say(make_plan(3))  # sent before its driver knew
    await asyncio.sleep(1.5)

    assert fenced.reason == "draining"
    assert link.all(StepResult) and bench.compute.executed == [1]
    assert not draining.done() and not link.all(PlanRefused)
    assert (await bench.connect("b").wait_for(Fenced)).reason == "draining"
    link.say(Yield(reason="the worker drains"))
    await draining


@on_virtual_clock
async def test_a_draining_worker_does_not_wait_for_a_driver_that_hangs(bench):
    await bench.connect().wait_for(Resident)

    async with asyncio.timeout(4.0):
        await bench.session.drain()


@on_virtual_clock
async def test_another_replica_takes_over_from_a_hung_driver_what_a_draining_worker_has(bench):
    hung = bench.connect()
    await hung.wait_for(Resident)
    hung.say(make_plan(1, handle=1, chunks=(Chunk(1, 3),)))
    await hung.wait_for(StepResult)
    draining = asyncio.create_task(bench.session.drain())
    await asyncio.sleep(2.1)

    heir = bench.connect("b")
    resident = await heir.wait_for(Resident)
    assert (await heir.wait_for(Fenced)).reason == "draining"
    assert len(resident.sequences) == 1 and not draining.done()
    heir.say(make_plan(2, epoch=resident.epoch))  # no step begins any more
    heir.say(Yield(reason="the worker drains"))
    await draining
    assert bench.compute.executed == [1]


@on_virtual_clock
async def test_a_worker_that_nobody_drives_drains_at_once(bench):
    await bench.session.drain()


@on_virtual_clock
async def test_idle_time_counts_as_bubble_only_while_sequences_are_unfinished(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    link.say(make_plan(1, handle=1, chunks=(Chunk(1, 3),)))
    await link.wait_for(StepResult)
    await asyncio.sleep(0.3)
    link.say(make_plan(2, chunks=(Chunk(1, 1),)))

    second = await link.wait_for(StepResult, 2)

    assert not link.all(StepResult)[0].idle_with_work
    assert second.idle_with_work
    assert second.timings.idle_ns == pytest.approx(0.3e9, rel=0.01)


@on_virtual_clock
async def test_a_step_that_is_merely_long_is_no_hung_one(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    bench.compute.step_s = 59.0
    link.say(make_plan(1))
    watching = asyncio.create_task(bench.session.wait_hung())
    await asyncio.sleep(70)

    assert not watching.done()
    watching.cancel()


@on_virtual_clock
async def test_a_step_that_never_ends_is_noticed(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    bench.compute.step_s = 1e6
    link.say(make_plan(1))

    async with asyncio.timeout(65):
        assert "step 1 has run for" in await bench.session.wait_hung()


@on_virtual_clock
async def test_ten_times_what_was_predicted_is_waited_for(bench):
    link = bench.connect()
    await link.wait_for(Resident)
    bench.compute.step_s = 190.0
    link.say(make_plan(1, predicted_ns=20_000_000_000))
    watching = asyncio.create_task(bench.session.wait_hung())
    await asyncio.sleep(199)

    assert not watching.done()
    watching.cancel()
