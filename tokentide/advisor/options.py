"""From the flags of `tokentide advise` to what is to be done. Raises ValueError, SettingError."""

import shlex
from dataclasses import dataclass, replace
from typing import Any

from scheduler_service.config import SchedulerSettings
from shared.profiles import Profile
from tokentide.advisor.judging import Judge
from tokentide.bench.compare_tool import workload_settings
from tokentide.bench.flags import names
from tokentide.bench.serve import NUM_ARRIVALS, Case, ServeOptions, requests_of
from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.workload import DEFAULT_VOCABULARY
from tokentide.simulator.load import SimulatedLoad, SimulatedSetup
from worker_service.config import WorkerSettings

PORT_DISTANCE = 100  # of a scheduler's two ports, as `tokentide up` chooses them
RATES = "over the second half of the arrivals"  # rows with others are not mixed in
LOADS = 4  # closed loop: so many requests a place, that most of the time all places are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseFlags:
    """Beside the load and the stack, which are as `bench serve` has them."""

    judge: Judge
    profile: str = ""  # a name or a file; empty: fitted to the stack
    num_workers: int = 1  # that are simulated
    fit_minutes: float = 3.0
    block_size: int = 16  # of a worker that is fitted
    verify: bool = False
    repeat: int = 1  # of what is verified
    serve: ServeFlags


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseOptions:
    flags: AdviseFlags
    serve: ServeOptions
    worker_args: tuple[str, ...]
    scheduler_args: tuple[str, ...]

    @property
    def needs_stack(self) -> bool:
        """Not where nothing is asked of a real one."""
        flags = self.flags
        return bool(not flags.profile or flags.verify or self.serve.target.endpoints)

    @property
    def case(self) -> Case:
        is_open = self.serve.is_open_loop
        concurrency = None if is_open else self.serve.concurrencies[0]
        return Case(index=0, concurrency=concurrency, repeat=0)

    def load(self) -> SimulatedLoad:
        return SimulatedLoad(
            requests=requests_of(self.case, self.serve),
            concurrency=self.case.concurrency,
            cut_s=self.serve.cut_s,
            seed=self.serve.sampling.seed,
        )

    def setup(self, profile: Profile) -> SimulatedSetup:
        """Of a real stack some flags say how it computes; the profile says so instead."""
        if not self.needs_stack:
            return SimulatedSetup.of_args(
                profile,
                worker_args=self.worker_args,
                scheduler_args=self.scheduler_args,
                num_workers=self.flags.num_workers,
            )
        simulated = () if "--simulate" in self.worker_args else ("--simulate", profile.name)
        return SimulatedSetup(
            profile=profile,
            worker=WorkerSettings.read([*simulated, *self.worker_args], environment={}),
            scheduler=SchedulerSettings.read(list(self.scheduler_args), environment={}),
            num_workers=self.flags.num_workers,
        )

    def settings(self, profile: Profile) -> dict[str, Any]:
        """What decides every figure: rows made with others are not mixed in."""
        slo = self.flags.judge.slo
        return {
            "ttft_slo_s": slo.ttft_s,
            "itl_slo_s": slo.itl_s,
            "percentile": slo.percentile,
            **workload_settings(self.serve),
            **({"rates": RATES} if self.serve.is_open_loop else {}),
            "endpoints": list(self.serve.target.endpoints),
            "model_folder": str(self.serve.target.model_dir or ""),
            "worker_args": list(self.worker_args),
            "scheduler_args": list(self.scheduler_args),
            "num_workers": self.flags.num_workers,
            "profile": profile.as_dict(),
        }


def advise_options(given: AdviseFlags) -> AdviseOptions:
    """Flags of services say how a running stack was started, or how a local one is to be."""
    serve = given.serve
    # Without a say the simulated worker has its profile's memory, which a fit takes from the stack.
    memory = ("--kv-memory", serve.kv_memory) if serve.kv_memory else ()
    worker_args = [*memory, *shlex.split(serve.worker_args)]
    scheduler_args = shlex.split(serve.scheduler_args)
    if serve.endpoint:
        operations = serve.operations or ",".join(map(operators_port, names(serve.endpoint)))
        serve = replace(
            serve, operations=operations, kv_memory="", worker_args="", scheduler_args=""
        )
    if given.profile and not given.verify and not serve.endpoint and serve.vocabulary is None:
        # Without one the packaged model's would be asked for, and that model fetched.
        serve = replace(serve, vocabulary=DEFAULT_VOCABULARY)
    options = serve_options(serve)
    if len(options.concurrencies) != 1:
        raise ValueError("one load at a time: --concurrency takes one number here")
    at_once = LOADS * options.concurrencies[0]
    number = options.num_requests or (NUM_ARRIVALS if options.is_open_loop else at_once)
    return AdviseOptions(
        flags=given,
        serve=replace(options, num_requests=number),
        worker_args=tuple(worker_args),
        scheduler_args=tuple(scheduler_args),
    )


def operators_port(endpoint: str) -> str:
    """Where `tokentide up` puts it. Raises ValueError with one line."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{endpoint!r} is no HOST:PORT")
    return f"{host}:{int(port) + PORT_DISTANCE}"
