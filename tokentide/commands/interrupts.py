"""Ctrl-C and SIGTERM: whatever runs is cancelled, cleans up, and the exit status says which it was."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(SystemExit):
    """A stop signal came outside an event loop."""

    def __init__(self, number: int) -> None:
        super().__init__(exit_status(number))


def exit_status(number: int) -> int:
    """As shells count it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + number


def raise_at_stop_signals() -> None:
    """For code without an event loop: clean up by `finally`, as after any exception."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        _ignore_stop_signals()  # once is enough; let it clean up
        raise Stopped(number)

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)


def _tell_nobody() -> None:
    return None


def run_until_stopped(
    make_work: Callable[[], Coroutine[Any, Any, int]], on_stop: Callable[[], None] = _tell_nobody
) -> int:
    """The exit status of the work, or of the signal that cancelled it: then no other one is heeded.

    `on_stop` is told of the signal at once; cleaning up may take seconds."""
    seen: list[int] = []
    try:
        return asyncio.run(_cancellable(make_work, seen, on_stop))
    finally:
        if seen:
            _ignore_stop_signals()


async def _cancellable(
    make_work: Callable[[], Coroutine[Any, Any, int]],
    seen: list[int],
    on_stop: Callable[[], None],
) -> int:
    loop = asyncio.get_running_loop()
    work: asyncio.Task[int] | None = None

    def on_signal(number: int) -> None:
        if not seen:  # the first one counts: cleaning up goes on undisturbed
            seen.append(number)
            on_stop()
            if work is not None:
                work.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    work = asyncio.create_task(make_work())
    try:
        return await work
    except asyncio.CancelledError:
        if not seen:
            raise
        return exit_status(seen[0])


def _ignore_stop_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
