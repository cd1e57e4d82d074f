"""From the flags of `bench serve` to what `run_serve` takes. Raises ValueError with one line."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shared.lengths import Lengths
from tokentide.bench.flags import names, numbers
from tokentide.bench.load import Sampling
from tokentide.bench.running import write_report
from tokentide.bench.serve import MIN_REQUESTS, ServeOptions
from tokentide.bench.step_file import read_step_workload
from tokentide.bench.target import TargetSpec, vocabulary_of
from tokentide.bench.workload import (
    DEFAULT_VOCABULARY,
    WorkloadSpec,
    WorkRequest,
    read_workload,
    write_workload,
)
from tokentide.commands.model import model_folder
from tokentide.commands.service_flags import WorkerFlags, scheduler_flags, worker_flags
from tokentide.models import packaged_model_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFlags:
    """Which stack: flags of every benchmark."""

    endpoint: str = ""
    operations: str = ""
    model: Path | None = None
    kv_memory: str = ""  # empty: the next for a real worker, its profile's for a simulated one
    default_kv_memory: str = "1GiB"
    worker_args: str = ""
    scheduler_args: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlags(TargetFlags):
    concurrency: str | None = None  # None: the next, unless requests arrive by themselves
    default_concurrency: str = "8"
    rate: float | None = None
    burstiness: float = 1.0
    num_requests: int | None = None
    prompt: str = "uniform:32-128"
    output: str = "fixed:64"
    shared_prefix: int = 0
    text: bool = False
    ignore_eos: bool = True
    vocabulary: int | None = None
    seed: int = 0
    workload: Path | None = None
    steps: Path | None = None  # a scheduler's step file
    save_workload: Path | None = None
    temperature: float = 0.0
    warmup: int | None = None
    cut_s: float = 0.0
    repeat: int = 1
    compare_transformers: bool = False
    out_file: Path | None = None


def serve_options(given: ServeFlags) -> ServeOptions:
    target = target_spec(given)
    spec = _workload_spec(given, target)
    requests = tuple(_file_requests(given, spec.vocabulary))
    is_open_loop = bool(given.rate is not None or given.steps or _has_arrivals(requests))
    _check_load(given, is_open_loop=is_open_loop)
    if given.compare_transformers and given.temperature != 0:
        raise ValueError("--compare-transformers compares greedy outputs: --temperature 0")
    return ServeOptions(
        target=target,
        concurrencies=numbers(given.concurrency or given.default_concurrency),
        is_open_loop=is_open_loop,
        spec=spec,
        num_requests=given.num_requests,
        requests=requests,
        warmup=given.warmup,
        cut_s=given.cut_s,
        repeat=given.repeat,
        sampling=Sampling(temperature=given.temperature, seed=given.seed),
        compare_transformers=given.compare_transformers,
        keep=partial(write_report, given.out_file) if given.out_file else _keep_nothing,
        save=partial(write_workload, given.save_workload) if given.save_workload else None,
    )


def _keep_nothing(_: dict[str, Any]) -> None:
    return None


def _check_load(given: ServeFlags, *, is_open_loop: bool) -> None:
    """What would have no effect. Raises ValueError."""
    if is_open_loop and given.concurrency is not None:
        raise ValueError("requests arrive by themselves (open loop): leave out --concurrency")
    if given.rate is None and given.burstiness != 1:
        raise ValueError("--burstiness is of the arrivals of --rate")
    if given.num_requests is not None and (given.steps or given.workload):
        raise ValueError("the file brings its own requests: leave out --num-requests")


def target_spec(given: TargetFlags) -> TargetSpec:
    """Raises SettingError for flags that a service would refuse, ModelUnusable for a folder that is none."""
    endpoints, operations = names(given.endpoint), names(given.operations)
    if operations and not endpoints:
        raise ValueError("--operations goes with --endpoint")
    if endpoints and (given.worker_args or given.scheduler_args or given.kv_memory):
        raise ValueError("flags of services go with a local stack, not with --endpoint")
    worker = WorkerFlags(args=())
    if not endpoints:
        worker = worker_flags(given.kv_memory, given.worker_args, given.default_kv_memory)
    return TargetSpec(
        endpoints=endpoints,
        operations=operations,
        model_dir=model_folder(str(given.model)) if given.model is not None else None,
        worker_args=worker.args,
        scheduler_args=scheduler_flags(given.scheduler_args),
        simulate=worker.simulate,
    )


def lengths(flag: str, spec: str) -> Lengths:
    """Raises ValueError with one line."""
    try:
        return Lengths.parse(spec)
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from error


def _workload_spec(given: ServeFlags, target: TargetSpec) -> WorkloadSpec:
    return WorkloadSpec(
        num_requests=given.num_requests or MIN_REQUESTS,
        prompt_lengths=lengths("--prompt", given.prompt),
        output_lengths=lengths("--output", given.output),
        shared_prefix=given.shared_prefix,
        text=given.text,
        ignore_eos=given.ignore_eos,
        vocabulary=given.vocabulary or known_vocabulary(target),
        rate=given.rate,
        burstiness=given.burstiness,
        seed=given.seed,
    )


def known_vocabulary(target: TargetSpec) -> int:
    """How many token ids the model surely has."""
    if target.endpoints and target.model_dir is None:
        return DEFAULT_VOCABULARY
    return vocabulary_of(target.model_dir or packaged_model_dir()) or DEFAULT_VOCABULARY


def _file_requests(given: ServeFlags, vocabulary: int) -> list[WorkRequest]:
    """Of a file; none if they are to be drawn."""
    path = given.steps or given.workload
    if path is None:
        return []
    if given.steps is not None and given.workload is not None:
        raise ValueError("a step file brings its own requests: leave out --workload")
    if given.rate is not None:
        kind = "step" if given.steps else "workload"
        raise ValueError(f"a {kind} file brings its own arrivals: leave out --rate")
    try:
        return read_step_workload(path, vocabulary) if given.steps else read_workload(path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error


def _has_arrivals(requests: tuple[WorkRequest, ...]) -> bool:
    return any(request.arrival_s > 0 for request in requests)
