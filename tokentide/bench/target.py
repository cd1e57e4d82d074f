"""The stack under load: a running one, or a local one of our own."""

import contextlib
import json
import os
import platform
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokentide.bench.operations_watch import OperationsWatch
from tokentide.client import Client
from tokentide.local_stack import LocalStack, StackSpec, local_stack
from tokentide.models import packaged_model_dir

SERVING_S = 60.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    endpoints: tuple[str, ...] = ()  # empty: start a local stack
    operations: tuple[str, ...] = ()
    model_dir: Path | None = None  # None: the packaged model
    worker_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    simulate: str = ""  # the profile of the local stack's workers; empty: real ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    client: Client
    watch: OperationsWatch
    operations: Sequence[str]  # operators' ports
    stack: LocalStack | None
    model: str
    max_request_tokens: int  # prompt and output of one request


@contextlib.asynccontextmanager
async def open_target(spec: TargetSpec, report: Report) -> AsyncIterator[Target]:
    """Raises ServingError, TokentideError."""
    async with contextlib.AsyncExitStack() as cleanup:
        stack = None
        endpoints, operations = list(spec.endpoints), list(spec.operations)
        if not endpoints:
            stack_spec = StackSpec(
                model_dir=model_folder(spec, report),
                worker_args=spec.worker_args,
                scheduler_args=spec.scheduler_args,
            )
            stack = await cleanup.enter_async_context(local_stack(stack_spec, report))
            endpoints, operations = stack.endpoints, stack.operations_endpoints
        watch = await cleanup.enter_async_context(OperationsWatch(operations))
        client = await cleanup.enter_async_context(Client(endpoints))
        if watch:
            report("waiting for the service")
            await watch.wait_serving(SERVING_S)
        models = await client.models()
        yield Target(
            client=client,
            watch=watch,
            operations=tuple(operations),
            stack=stack,
            model=models[0].name,
            max_request_tokens=models[0].max_request_tokens,
        )


def model_folder(spec: TargetSpec, report: Report) -> Path:
    return spec.model_dir or packaged_model_dir(progress=report)


def vocabulary_of(model_dir: Path) -> int | None:
    """How many token ids a model folder's model has; None if it does not say."""
    try:
        return int(json.loads((model_dir / "config.json").read_text())["vocab_size"])
    except (OSError, KeyError, ValueError):
        return None


def machine_facts() -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def load_average() -> list[float]:
    """Of 1, 5 and 15 minutes: a busy neighbour ruins a figure, so it stands beside it."""
    return [round(value, 2) for value in os.getloadavg()]


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
