"""`up`: a local stack in the foreground, until Ctrl-C. What dies is started again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tokentide.commands.errors import CommandError
from tokentide.commands.interrupts import run_until_stopped
from tokentide.commands.top import connected, show_stack
from tokentide.errors import TokentideError
from tokentide.local_stack import LocalStack, StackSpec, local_stack

FOLLOW_S = 0.1
VIEW_INTERVAL_MS = 500
RECONNECT_S = 0.5


def run_up(spec: StackSpec, *, live: bool) -> int:
    console = Console()
    return run_until_stopped(lambda: _up(spec, console, live))


async def _up(spec: StackSpec, console: Console, live: bool) -> int:
    def report(message: str) -> None:
        console.print(f"  {message}", markup=False, highlight=False, soft_wrap=True)

    async with local_stack(spec, report) as stack:
        report(f"clients: {','.join(stack.endpoints)}")
        report(f"operators: {','.join(stack.operations_endpoints)}")
        report(f"logs: {stack.run_dir}; Ctrl-C stops everything")
        showing = asyncio.create_task(_view(stack, console) if live else _logs(stack, console))
        try:
            await stack.supervise(report)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
    return 0


async def _view(stack: LocalStack, console: Console) -> None:
    while True:
        try:
            async with connected(stack.operations_endpoints) as replicas:
                await show_stack(replicas, VIEW_INTERVAL_MS, console)
        except (TokentideError, CommandError):
            await asyncio.sleep(RECONNECT_S)  # its replica died, and is started again


async def _logs(stack: LocalStack, console: Console) -> None:
    tails = [LogTail(p.label, p.log_path) for p in (*stack.workers, *stack.schedulers)]
    try:
        while True:
            _print_new(tails, console)
            await asyncio.sleep(FOLLOW_S)
    finally:
        _print_new(tails, console)


def _print_new(tails: Sequence["LogTail"], console: Console) -> None:
    for tail in tails:
        for line in tail.new_lines():
            console.print(f"{tail.label:<12} {line}", markup=False, highlight=False, soft_wrap=True)


class LogTail:
    """The lines that a log has got since they were last asked for."""

    def __init__(self, label: str, path: Path) -> None:
        self.label = label
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[str]:
        """Whole lines only; the begun one comes when it is complete."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                fresh = log.read()
        except OSError:
            return []
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()
