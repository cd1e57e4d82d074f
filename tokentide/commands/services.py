"""`scheduler`, `worker`, `bench`: commands that read their own arguments."""

from collections.abc import Sequence

from tokentide.commands.errors import CommandError


def run_scheduler(args: Sequence[str]) -> int:
    try:
        from scheduler_service.__main__ import main  # noqa: PLC0415 (needs its extra)
    except ModuleNotFoundError as error:
        raise _without("scheduler", error) from error
    return main(args)


def run_worker(args: list[str]) -> int:
    from tokentide.commands.model import name_packaged_model  # noqa: PLC0415

    try:
        from worker_service.__main__ import main  # noqa: PLC0415 (needs its extra)
    except ModuleNotFoundError as error:
        raise _without("worker", error) from error
    return main(name_packaged_model(args))


def run_bench(args: list[str]) -> int:
    try:
        from tokentide.bench.commands import app  # noqa: PLC0415 (slow)
    except ModuleNotFoundError as error:
        raise _without("bench", error) from error
    return int(app(args=args, prog_name="tokentide bench", standalone_mode=False) or 0)


def _without(extra: str, error: ModuleNotFoundError) -> CommandError:
    return CommandError(f"{error.name} is not installed: pip install 'tokentide[{extra}]'")
