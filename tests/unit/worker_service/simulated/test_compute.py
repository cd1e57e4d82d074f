"""Steps that take their predicted time, asleep: on a virtual clock, so no test waits for it."""

import asyncio

from simulated_engines import make_admission, make_engine
from virtual_clock import VirtualClockLoop

from shared.types import BatchPlan, Chunk
from worker_service.simulated.compute import SimulatedCompute


def run(coroutine):
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(coroutine)


def plan(step_id: int, *admissions) -> BatchPlan:
    return BatchPlan(epoch=1, step_id=step_id, admissions=admissions, chunks=(Chunk(1, 64),))


async def time_of(work) -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await work
    return loop.time() - began_s


def test_a_step_ends_after_its_predicted_time():
    async def steps() -> list[float]:
        compute = SimulatedCompute(make_engine(base_ns=50e6))
        await asyncio.sleep(10)
        first = await time_of(compute.execute(plan(1, make_admission())))
        await asyncio.sleep(3)
        return [first, await time_of(compute.execute(plan(2)))]

    assert [round(step_s, 6) for step_s in run(steps())] == [0.05, 0.05]


def test_what_a_timer_is_late_by_is_taken_off_the_next_step():
    async def steps() -> float:
        compute = SimulatedCompute(make_engine(base_ns=50e6))
        await compute.execute(plan(1, make_admission()))
        await asyncio.sleep(0.002)
        return await time_of(compute.execute(plan(2)))

    assert round(run(steps()), 6) == 0.048
