"""The flags of a local stack's services, judged before anything is started."""

import shlex
from dataclasses import dataclass

from scheduler_service.config import SchedulerSettings
from shared.profiles import load_profile
from worker_service.config import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFlags:
    args: tuple[str, ...]
    simulate: str = ""  # the profile; empty: a real worker


def worker_flags(kv_memory: str, more: str, default_kv_memory: str) -> WorkerFlags:
    """`kv_memory` empty: the default for a real worker, the profile's own for a simulated one.

    Raises SettingError for what the worker would refuse; ValueError for unpaired quotes.
    """
    args = [*(("--kv-memory", kv_memory) if kv_memory else ()), *shlex.split(more)]
    settings = WorkerSettings.read(["--model", "the stack's", *args])
    if settings.simulate:
        from worker_service.simulated.start import check_simulated  # noqa: PLC0415 (not for all)

        check_simulated(settings)
        load_profile(settings.simulate)
    elif "kv_memory" not in settings.model_fields_set:
        args = ["--kv-memory", default_kv_memory, *args]
    return WorkerFlags(args=tuple(args), simulate=settings.simulate)


def scheduler_flags(more: str) -> tuple[str, ...]:
    """Raises SettingError for what a scheduler would refuse; ValueError for unpaired quotes."""
    args = tuple(shlex.split(more))
    SchedulerSettings.read(args)
    return args
