import asyncio
import os
import signal

import pytest

from tokentide.commands.interrupts import STOP_SIGNALS, run_until_stopped


@pytest.fixture(autouse=True)
def _handlers_are_put_back():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_signal_is_told_once_before_the_work_has_cleaned_up():
    told: list[str] = []

    async def work() -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
            told.append("cleaned up")
        return 0

    run_until_stopped(work, on_stop=lambda: told.append("stopping"))

    assert told == ["stopping", "cleaned up"]


def test_work_that_ends_by_itself_gives_its_status():
    async def work() -> int:
        return 3

    assert run_until_stopped(work) == 3


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_signal_cancels_the_work_which_cleans_up(number, status):
    cleaned: list[bool] = []

    async def work() -> int:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), number)  # a second one disturbs nothing
            await asyncio.sleep(0)
            cleaned.append(True)
        return 0

    assert run_until_stopped(work) == status
    assert cleaned == [True]
