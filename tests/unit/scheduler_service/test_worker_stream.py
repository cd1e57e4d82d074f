"""A driver's stream: one message at a time, silence and breaks are WorkerLost."""

import asyncio

import pytest
from virtual_clock import VirtualClockLoop

from scheduler_service.worker_stream import WorkerStream
from shared.errors import WorkerLost
from shared.types import BlockCounts, DriverHeartbeat, Fenced, Resident, WorkerHeartbeat

RESIDENT = Resident(
    incarnation="i",
    epoch=1,
    last_step_id=0,
    sequences=(),
    blocks=BlockCounts(total=1, free=1, cached=0, held=0),
)


class FakeLink:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.num_sending = 0
        self.most_sending = 0

    async def send(self, message):
        self.num_sending += 1
        self.most_sending = max(self.most_sending, self.num_sending)
        await asyncio.sleep(0.01)
        self.num_sending -= 1

    async def receive(self):
        answer = self.answers.pop(0)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return await self.receive()
        return answer

    def close(self): ...


def run(scenario):
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(scenario)


def test_messages_are_sent_one_at_a_time():
    async def scenario():
        link = FakeLink()
        stream = WorkerStream(link, 2.0)
        await asyncio.gather(*(stream.send(DriverHeartbeat()) for _ in range(5)))
        return link.most_sending

    assert run(scenario()) == 1


def test_a_grant_may_come_after_heartbeats_of_a_long_step():
    beats = [WorkerHeartbeat(last_step_id=1, running_step_id=2)] * 3
    link = FakeLink(1.5, beats[0], 1.5, beats[1], 1.5, RESIDENT)

    assert run(WorkerStream(link, 2.0).hello("a")) == RESIDENT


@pytest.mark.parametrize("answers", [(None,), (3.0, RESIDENT), (Fenced(reason="driven_by_other"),)])
def test_a_break_silence_or_refusal_is_a_lost_worker(answers):
    with pytest.raises(WorkerLost):
        run(WorkerStream(FakeLink(*answers), 2.0).hello("a"))
