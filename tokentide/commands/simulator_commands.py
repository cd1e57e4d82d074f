"""`tokentide simulate` and `tokentide profile`: names, arguments, help."""

# ruff: noqa: PLC0415 (--help must be quick: no grpc, no services)
# ruff: noqa: PLR0913, PLR0917 (a command's arguments are its flags)

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from tokentide.bench import flags
from tokentide.commands.flags import OPERATIONS_ENDPOINT


def simulate(
    profile: Annotated[
        str, typer.Option(help="device and model: a packaged profile's name, or a file")
    ],
    strategy: Annotated[
        str,
        typer.Option(
            help="as continuous, static:8, dynamic:16:max_queue_delay_ms=50; "
            "empty: the scheduler's own setting"
        ),
    ] = "",
    workers: Annotated[int, typer.Option(min=1, help="how many")] = 1,
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    concurrency: flags.Concurrency = None,
    rate: flags.Rate = None,
    burstiness: flags.Burstiness = 1.0,
    num_requests: flags.NumRequests = None,
    prompt: flags.PromptLengths = "uniform:32-128",
    output: flags.OutputLengths = "fixed:64",
    shared_prefix: flags.SharedPrefix = 0,
    text: flags.Text = False,
    ignore_eos: flags.IgnoreEos = True,
    vocabulary: flags.Vocabulary = None,
    seed: flags.Seed = 0,
    workload: flags.Workload = None,
    steps: flags.StepFile = None,
    save_workload: flags.SaveWorkload = None,
    cut_s: flags.Cut = 0.0,
    repeat: flags.Repeat = 1,
    as_json: flags.Json = False,
    out_file: flags.OutFile = None,
) -> None:
    """What `bench serve` would measure, on a virtual clock: the planner's own code, a device's profile.

    Lengths that the model would end by itself: --no-ignore-eos and --worker-args
    "--simulate-lengths exponential:64:256".
    """
    from tokentide.bench.serve_options import ServeFlags
    from tokentide.commands.simulate import SimulateFlags, run_simulation

    given = locals()
    known = {field.name for field in fields(ServeFlags)}
    serve = ServeFlags(**{name: value for name, value in given.items() if name in known})
    named: dict[str, Any] = {
        "profile": profile,
        "strategy": strategy,
        "num_workers": workers,
    }
    run_simulation(SimulateFlags(**named, serve=serve), as_json=as_json)


def profile(
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write")],
    endpoint: Annotated[
        str, typer.Option(help="operators' port of the only scheduler of one worker")
    ] = OPERATIONS_ENDPOINT,
    client: Annotated[
        str, typer.Option(help="its client port; empty: the operators' port less 100")
    ] = "",
    name: Annotated[str, typer.Option(help="of the profile; empty: the file's")] = "",
    minutes: Annotated[float, typer.Option(min=0.1, help="of load, at most")] = 3.0,
    block_size: Annotated[int, typer.Option(min=1, help="tokens a block of its cache")] = 16,
    seed: flags.Seed = 0,
    as_json: flags.Json = False,
) -> None:
    """Fit a worker's cost model under loads of its own, and write it as a profile.

    The stack must serve nobody else meanwhile: steps with others' requests are left out.
    """
    from tokentide.commands.profile import ProfileFlags, run_profile

    run_profile(
        ProfileFlags(
            out=out,
            operations=endpoint,
            client=client,
            name=name or out.stem,
            minutes=minutes,
            block_size=block_size,
            seed=seed,
        ),
        as_json=as_json,
    )
