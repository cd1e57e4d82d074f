"""`top`: queue, workers, blocks and the last steps of a running service, as they change."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.live import Live

from tokentide.commands.endpoints import REACH_S
from tokentide.commands.interrupts import run_until_stopped
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.readings import Loads, Step
from tokentide.live_view import StackView, is_live, loads_line, step_line

REFRESH_S = 0.25


def top(*, endpoint: str, interval_ms: int, once: bool, as_json: bool) -> int:
    console = Console()

    async def run() -> int:
        async with OperationsClient(endpoint) as operations:
            await operations.wait_ready(REACH_S)
            if once:
                show_once(console, await operations.loads(), as_json)
            elif as_json:
                await _both(operations, interval_ms, _print_loads, _print_step)
            else:
                await show_stack(operations, interval_ms, console)
        return 0

    return run_until_stopped(run)


async def show_stack(operations: OperationsClient, interval_ms: int, console: Console) -> None:
    """Until cancelled, or until the service ends. Raises TokentideError."""
    view = StackView()
    loop = asyncio.get_running_loop()
    if not is_live(console):
        await _show_lines(operations, interval_ms, console, view)
        return
    with Live(console=console, auto_refresh=False, get_renderable=view.render) as live:
        drawing = asyncio.create_task(_draw(live))
        try:
            await _both(
                operations,
                interval_ms,
                lambda loads: view.on_loads(loads, loop.time()),
                view.on_step,
            )
        finally:
            drawing.cancel()
            live.refresh()


async def _show_lines(
    operations: OperationsClient, interval_ms: int, console: Console, view: StackView
) -> None:
    loop = asyncio.get_running_loop()

    def on_loads(loads: Loads) -> None:
        view.on_loads(loads, loop.time())
        _line(console, loads_line(view, loads))

    await _both(
        operations, interval_ms, on_loads, lambda step: _line(console, step_line(step).plain)
    )


def show_once(console: Console, loads: Loads, as_json: bool) -> None:
    if as_json:
        _print_loads(loads)
        return
    view = StackView()
    view.on_loads(loads, 0.0)
    console.print(view.render())


async def _both(
    operations: OperationsClient,
    interval_ms: int,
    on_loads: Callable[[Loads], None],
    on_step: Callable[[Step], None],
) -> None:
    """Both streams until one ends, which neither does by itself."""
    tasks = [
        asyncio.create_task(_each(operations.watch_loads(interval_ms), on_loads)),
        asyncio.create_task(_each(operations.watch_steps(), on_step)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _each(readings: AsyncIterator[Any], act: Callable[[Any], None]) -> None:
    async for reading in readings:
        act(reading)


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
