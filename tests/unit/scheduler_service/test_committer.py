"""Commit, then deliver; again until the store has it; from the log's length when there is a gap."""

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest
from fakes_store import CAPACITY
from store_model import StoreModel
from virtual_clock import VirtualClockLoop

from scheduler_service.committer import CommitListener, Committer
from scheduler_service.driver_values import DriverSettings
from scheduler_service.store.values import CommitRow, Fence, NewRequest
from shared.errors import StaleFence, StoreUnavailable
from shared.types import FinishReason

FENCE = Fence("w", 1)


@dataclass
class Heard:
    durable: list = field(default_factory=list)
    refused: list = field(default_factory=list)
    outputs: dict = field(default_factory=dict)


class FlakyStore:
    """The model behind calls that may fail before or after they happened."""

    def __init__(self, model):
        self.model = model
        self.failures = []  # "before" or "after", for the next calls

    async def commit(self, fence, rows):
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "before":
            raise StoreUnavailable("away")
        outcome = await self.model.commit(fence, rows)
        if failure == "after":
            raise StoreUnavailable("the answer got lost")
        return outcome

    async def requeue(self, fence, request_ids):
        return await self.model.requeue(fence, request_ids)


async def open_committer(failures=()):
    nonces = itertools.count(1)
    model = StoreModel(now_ms=lambda: 0, draw_nonce=lambda: next(nonces))
    await model.attach_driver(FENCE, "a", CAPACITY)
    request = NewRequest(
        request_id="r", payload_hash=b"h", payload=b"p", num_prompt_tokens=1, max_tokens=100
    )
    await model.submit(request)
    assignment = (await model.claim(FENCE, ["r"])).claimed[0].assignment
    store = FlakyStore(model)
    store.failures = list(failures)
    heard = Heard()
    committer = Committer(
        store=store,
        settings=DriverSettings(),
        listener=CommitListener(
            durable=heard.durable.extend,
            refused=heard.refused.append,
            replied=lambda reply: None,
            output_of=lambda name: heard.outputs.get(name, ()),
            rolled_back=lambda: None,
        ),
        clock_ns=lambda: 0,
        fence=FENCE,
    )
    return model, committer, heard, assignment


def make_row(assignment, index, ids, finish=None):
    return CommitRow(
        request_id="r", assignment=assignment, index=index, token_ids=tuple(ids), finish=finish
    )


async def drain(committer):
    running = asyncio.create_task(committer.run())
    while committer.num_uncommitted and not running.done():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return running


def run(scenario):
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(scenario)


@pytest.mark.parametrize("failures", [[], ["before"], ["after"], ["after", "before", "after"]])
def test_rows_reach_the_log_once_whatever_answers_get_lost(failures):
    async def scenario():
        model, committer, heard, assignment = await open_committer(failures)
        for at in range(3):
            committer.put(at + 1, [make_row(assignment, 2 * at, [at, at])])
        await drain(committer)
        return model.requests["r"].log, committer.durable_step, len(heard.durable)

    log, durable_step, num_durable = run(scenario())

    assert log == [0, 0, 1, 1, 2, 2]
    assert durable_step == 3
    assert num_durable == 3


def test_nothing_is_told_durable_before_the_store_has_it():
    async def scenario():
        _, committer, heard, assignment = await open_committer(["before"] * 3)
        committer.put(1, [make_row(assignment, 0, [1])])
        running = asyncio.create_task(committer.run())
        await asyncio.sleep(0.05)
        early = (list(heard.durable), committer.is_store_down, committer.durable_step)
        await drain(committer)
        running.cancel()
        return early

    assert run(scenario()) == ([], True, 0)


def test_a_gap_is_filled_from_what_the_driver_holds():
    async def scenario():
        model, committer, heard, assignment = await open_committer()
        heard.outputs["r"] = [7, 8, 9]
        committer.put(1, [make_row(assignment, 2, [9])])
        await drain(committer)
        return model.requests["r"].log

    assert run(scenario()) == [7, 8, 9]


def test_a_row_of_a_request_that_is_no_longer_ours_is_refused():
    async def scenario():
        model, committer, heard, assignment = await open_committer()
        end = make_row(assignment, 0, [1], FinishReason.LENGTH)
        committer.put(1, [end])
        committer.put(2, [make_row(assignment, 1, [2])])
        await drain(committer)
        return model.requests["r"].log, heard.refused

    log, refused = run(scenario())

    assert log == [1]
    assert refused == ["r"]


def test_requeues_follow_the_rows_that_came_with_them():
    async def scenario():
        model, committer, _, assignment = await open_committer()
        committer.put(1, [make_row(assignment, 0, [1, 2])], ["r"])
        assert committer.awaited() == {"r"}
        await drain(committer)
        return model.requests["r"]

    request = run(scenario())

    assert (request.status, request.log) == ("waiting", [1, 2])


def test_a_stale_fence_ends_it():
    async def scenario():
        model, committer, _, assignment = await open_committer()
        await model.attach_driver(Fence("w", 2), "b", CAPACITY)
        committer.put(1, [make_row(assignment, 0, [1])])
        return (await drain(committer)).exception()

    assert isinstance(run(scenario()), StaleFence)
