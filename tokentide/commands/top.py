"""`top`: queue, workers, blocks and the last steps of a running service, as they change."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.live import Live

from tokentide.commands.endpoints import REACH_S, endpoint_names
from tokentide.commands.interrupts import run_until_stopped
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.readings import Loads, Step, Totals
from tokentide.errors import TokentideError
from tokentide.live_view import StackView, is_live, loads_line, step_line

REFRESH_S = 0.25
ONCE_S = 1.0  # between the two readings that a rate takes


def top(*, endpoints: str, interval_ms: int, once: bool, as_json: bool) -> int:
    names = endpoint_names(endpoints)
    console = Console()

    async def run() -> int:
        async with connected(names) as replicas:
            if once:
                await _show_once(replicas, console, as_json)
            elif as_json:
                await _watch(replicas, interval_ms, _print_loads, _print_step)
            else:
                await show_stack(replicas, interval_ms, console)
        return 0

    return run_until_stopped(run)


@asynccontextmanager
async def connected(endpoints: Sequence[str]) -> AsyncIterator[list[OperationsClient]]:
    """To those of the operators' ports that answer. Raises CommandError if none does."""
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(OperationsClient(e)) for e in endpoints]
        tries = [replica.wait_ready(REACH_S) for replica in replicas]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failures) == len(replicas):
            raise failures[0]
        yield [r for r, answer in zip(replicas, answers, strict=True) if answer is None]


async def show_stack(
    replicas: Sequence[OperationsClient], interval_ms: int, console: Console
) -> None:
    """Until cancelled, or until the service ends: TokentideError."""
    view = StackView()
    loop = asyncio.get_running_loop()

    def on_loads(loads: Loads) -> None:
        view.on_loads(loads, loop.time())
        if not is_live(console):
            _line(console, loads_line(view, loads))

    if not is_live(console):
        await _watch(
            replicas, interval_ms, on_loads, lambda step: _line(console, step_line(step).plain)
        )
        return
    with Live(console=console, auto_refresh=False, get_renderable=view.render) as live:
        drawing = asyncio.create_task(_draw(live))
        try:
            await _watch(replicas, interval_ms, on_loads, view.on_step)
        finally:
            drawing.cancel()


async def _show_once(replicas: Sequence[OperationsClient], console: Console, as_json: bool) -> None:
    if as_json:
        for replica in replicas:
            _print_loads(await replica.loads())
        return
    view, loop = StackView(), asyncio.get_running_loop()
    for replica in replicas:
        view.on_loads(await replica.loads(), loop.time())
    await asyncio.sleep(ONCE_S)
    for replica in replicas:
        with contextlib.suppress(TokentideError):  # its first reading stands
            view.on_loads(await replica.loads(), loop.time())
    console.print(view.render())
    _line(console, wasted_text(view.totals))


def wasted_text(totals: Totals) -> str:
    """Work that nobody wanted, by cause, beside what was preempted and recomputed."""
    return (
        f"wasted: held places {totals.num_held_sequence_steps} sequence-steps"
        f"  replayed {totals.num_replayed_tokens}  after a cancel {totals.num_tokens_after_cancel}"
        f"  of expired prompts {totals.num_expired_prompt_tokens} tokens"
    )


async def _watch(
    replicas: Sequence[OperationsClient],
    interval_ms: int,
    on_loads: Callable[[Loads], None],
    on_step: Callable[[Step], None],
) -> None:
    """All streams of all replicas, until the last of them has ended; then its error."""
    tasks = {
        asyncio.create_task(_each(stream, act))
        for replica in replicas
        for stream, act in (
            (replica.watch_loads(interval_ms), on_loads),
            (replica.watch_steps(), on_step),
        )
    }
    try:
        ends = await asyncio.gather(*tasks)
        raise ends[-1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _each(readings: AsyncIterator[Any], act: Callable[[Any], None]) -> TokentideError:
    """Why the stream ended."""
    try:
        async for reading in readings:
            act(reading)
    except TokentideError as error:
        return error
    return TokentideError("UNAVAILABLE", "the service has ended the stream")


async def _draw(live: Live) -> None:
    while True:
        live.refresh()
        await asyncio.sleep(REFRESH_S)


def _print_loads(loads: Loads) -> None:
    print(json.dumps({"loads": asdict(loads)}), flush=True)


def _print_step(step: Step) -> None:
    print(json.dumps({"step": asdict(step)}), flush=True)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
