"""How every benchmark command runs: a progress line, one line for an error, a table or JSON at the end."""

import contextlib
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import typer
from rich.console import Console, RenderableType

from shared.errors import ServingError
from tokentide.bench.live_progress import LiveProgress
from tokentide.commands.errors import port_hint
from tokentide.commands.interrupts import run_until_stopped
from tokentide.errors import TokentideError

Run = Callable[[LiveProgress], Coroutine[Any, Any, dict[str, Any]]]


def run_shown(run: Run) -> dict[str, Any]:
    """A stop signal cancels the run, which stops what it started; the exit status names the signal."""
    reports: list[dict[str, Any]] = []

    with LiveProgress() as progress:

        async def work() -> int:
            reports.append(await run(progress))
            return 0

        status = run_until_stopped(work, on_stop=lambda: progress.tell("stopping"))
    if not reports:
        raise typer.Exit(status)
    return reports[0]


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """What may go wrong outside of us ends the command with one line."""
    try:
        with _first_alone():
            yield
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        _fail(f"{code}: {error.details()}{port_hint(code)}")
    except TokentideError as error:
        _fail(f"{error}{port_hint(error.code)}")
    except (ServingError, ValueError, TimeoutError, OSError) as error:
        _fail(str(error) or type(error).__name__)


@contextlib.contextmanager
def _first_alone() -> Iterator[None]:
    """Of errors that tasks raised together, the first one tells enough."""
    try:
        yield
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from group


def tell(message: str) -> None:
    """On standard error: standard output may be JSON."""
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)


def show(report: dict[str, Any], table: RenderableType, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(table)


def write_report(path: Path, report: dict[str, Any]) -> None:
    path.write_text(f"{json.dumps(report, indent=2)}\n")


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(2)
