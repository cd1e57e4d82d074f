"""The one connection: no reply ever reaches another caller, and none is waited for in vain."""

import asyncio
import random
from typing import Any

import pytest
from redis.exceptions import ResponseError

from scheduler_service.store.connecting import connection_maker
from scheduler_service.store.lane import Lane
from shared.errors import StoreUnavailable


class FakeConnection:
    """Echoes its commands in order, when it is let to."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[Any] = asyncio.Queue()
        self.may_connect = True
        self.num_connects = 0
        self.is_silent = False

    async def connect(self) -> None:
        self.num_connects += 1
        if not self.may_connect:
            raise ConnectionRefusedError("nobody there")

    async def disconnect(self, nowait: bool = False) -> None:
        self.replies = asyncio.Queue()

    def pack_commands(self, commands: Any) -> list[Any]:
        return list(commands)

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        await asyncio.sleep(0)
        for one in command:
            if not self.is_silent:
                self.replies.put_nowait(one)

    async def read_response(
        self, disable_decoding: bool = False, timeout: float | None = None
    ) -> Any:
        reply = await self.replies.get()
        await asyncio.sleep(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.mark.parametrize("seed", range(5))
async def test_callers_cancelled_at_any_await_do_not_mix_up_replies(
    valkey_url: str, seed: int
) -> None:
    source = random.Random(seed)
    lane = Lane(connection_maker(valkey_url, io_timeout_s=5))
    lane.start()

    async def ask(number: int) -> bool:
        for turn in range(3):
            question = f"{number}.{turn}"
            if await lane.call("ECHO", question) != question.encode():
                return False
        return True

    async def cancel_after(task: asyncio.Task[bool], num_turns: int) -> None:
        for _ in range(num_turns):
            await asyncio.sleep(0)
        task.cancel()

    tasks = []
    async with asyncio.TaskGroup() as group:
        for number in range(300):
            tasks.append(group.create_task(ask(number)))
            if source.random() < 0.5:
                group.create_task(cancel_after(tasks[-1], source.randint(0, 30)))
            if source.random() < 0.3:
                await asyncio.sleep(0)

    ended = [task for task in tasks if not task.cancelled()]
    assert 100 < len(ended) < 300, "some are cancelled, some are not"
    assert all(task.result() for task in ended)
    await lane.close()


async def test_a_refused_command_fails_alone(valkey_url: str) -> None:
    lane = Lane(connection_maker(valkey_url, io_timeout_s=5))
    lane.start()

    results = await asyncio.gather(
        lane.call("ECHO", "a"),
        lane.call("NONSENSE"),
        lane.call("ECHO", "b"),
        return_exceptions=True,
    )

    assert results[0] == b"a" and results[2] == b"b"
    assert isinstance(results[1], ResponseError)
    await lane.close()


async def test_a_lost_connection_fails_what_was_asked_and_is_made_again(
    connection: FakeConnection,
) -> None:
    lane = Lane(lambda: connection)
    lane.start()
    assert await lane.call("a") == ("a",)
    connection.is_silent = True
    pending = asyncio.create_task(lane.call("b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    connection.replies.put_nowait(ConnectionResetError("gone"))

    with pytest.raises(StoreUnavailable):
        await pending
    connection.is_silent = False  # the server is back
    assert await lane.call("c") == ("c",)
    assert connection.num_connects == 2
    await lane.close()


async def test_a_silent_server_is_given_up_after_the_limit(connection: FakeConnection) -> None:
    connection.is_silent = True
    lane = Lane(lambda: connection, reply_timeout_s=0.01)
    lane.start()

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(lane.call("a"), 5)
    await lane.close()


async def test_no_server_is_an_answer_too(connection: FakeConnection) -> None:
    connection.may_connect = False
    lane = Lane(lambda: connection)
    lane.start()

    with pytest.raises(StoreUnavailable, match="nobody there"):
        await lane.call("a")
    connection.may_connect = True
    assert await lane.call("b") == ("b",)
    await lane.close()


@pytest.mark.parametrize(
    "message", ["BUSY Redis is busy", "LOADING Redis is loading", "MISCONF Errors writing"]
)
async def test_a_server_that_is_not_ready_is_unavailable(
    connection: FakeConnection, message: str
) -> None:
    connection.is_silent = True
    lane = Lane(lambda: connection)
    lane.start()
    pending = asyncio.create_task(lane.call("a"))
    connection.replies.put_nowait(ResponseError(message))

    with pytest.raises(StoreUnavailable):
        await pending
    await lane.close()


async def test_an_answer_without_a_question_ends_the_connection(
    connection: FakeConnection,
) -> None:
    lane = Lane(lambda: connection)
    lane.start()
    assert await lane.call("a") == ("a",)

    connection.replies.put_nowait("who asked?")
    for _ in range(20):  # turns of the loop: until the lane has noticed
        await asyncio.sleep(0)

    assert await lane.call("b") == ("b",)
    assert connection.num_connects == 2
    await lane.close()


async def test_after_close_a_call_is_refused_and_a_waiting_one_ends(
    connection: FakeConnection,
) -> None:
    connection.is_silent = True
    lane = Lane(lambda: connection)
    lane.start()
    pending = asyncio.create_task(lane.call("a"))
    await asyncio.sleep(0)

    await lane.close()

    for call in (pending, lane.call("b")):
        with pytest.raises(StoreUnavailable):
            await call


async def test_a_bug_in_the_actor_leaves_nobody_waiting(
    connection: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "pack_commands", lambda commands: 1 / 0)
    lane = Lane(lambda: connection)
    lane.start()

    with pytest.raises(StoreUnavailable):
        await lane.call("a")
    await lane.close()


@pytest.mark.parametrize("error", [AttributeError("no writer"), RuntimeError("handle is closed")])
async def test_a_connection_that_ends_under_the_writer_is_made_again(
    connection: FakeConnection, error: Exception
) -> None:
    """The half that reads has closed it: what redis-py and uvloop then raise is no bug of ours."""
    lane = Lane(lambda: connection)
    lane.start()
    assert await lane.call("first") == ("first",)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "send_packed_command", raising(error))
        with pytest.raises(StoreUnavailable):
            await lane.call("second")

    assert await lane.call("third") == ("third",)
    await lane.close()


def raising(error: Exception) -> Any:
    async def send(command: Any, check_health: bool = True) -> None:
        raise error

    return send
