"""`tokentide advise`: names, arguments, help. What it does is in `advisor/`, imported when it runs."""

# ruff: noqa: PLC0415 (--help must be quick: no grpc, no services)
# ruff: noqa: PLR0913, PLR0917 (a command's arguments are its flags)

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from tokentide.bench import flags


def advise(
    profile: Annotated[
        str, typer.Option(help="a profile's name or file; empty: fitted to the stack, under loads")
    ] = "",
    ttft_slo_ms: Annotated[
        float | None, typer.Option(help="longest time to first token, at --percentile")
    ] = None,
    itl_slo_ms: Annotated[
        float | None, typer.Option(help="longest inter-token latency, at --percentile")
    ] = None,
    percentile: Annotated[float, typer.Option(help="of both times")] = 99.0,
    objective: Annotated[
        str, typer.Option(help="throughput: tokens/s; goodput: requests/s that meet the SLO each")
    ] = "throughput",
    verify: Annotated[
        bool, typer.Option("--verify", help="run the best two and the current setting, live")
    ] = False,
    repeat: Annotated[int, typer.Option(min=1, help="live runs of each; medians count")] = 1,
    endpoint: Annotated[
        str,
        typer.Option(help="running schedulers; empty: a local stack, where one is needed at all"),
    ] = "",
    operations: Annotated[
        str, typer.Option(help="their operators' ports; empty: the client ports plus 100")
    ] = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "",
    workers: Annotated[int, typer.Option(min=1, help="that are simulated")] = 1,
    worker_args: Annotated[str, typer.Option(help="flags of its workers, in one string")] = "",
    scheduler_args: Annotated[str, typer.Option(help="of its schedulers, in one string")] = "",
    concurrency: flags.OneConcurrency = None,
    rate: flags.Rate = None,
    burstiness: flags.Burstiness = 1.0,
    num_requests: Annotated[
        int | None,
        typer.Option(min=1, help="of the load; none: 4 times the concurrency, or 256 arrivals"),
    ] = None,
    prompt: flags.PromptLengths = "uniform:32-128",
    output: flags.OutputLengths = "exponential:64:256",
    shared_prefix: flags.SharedPrefix = 0,
    text: flags.Text = False,
    ignore_eos: flags.IgnoreEos = True,
    vocabulary: flags.Vocabulary = None,
    seed: flags.Seed = 0,
    workload: flags.Workload = None,
    steps: flags.StepFile = None,
    temperature: flags.Temperature = 0.0,
    warmup: flags.Warmup = None,
    cut_s: flags.Cut = 0.0,
    fit_minutes: Annotated[
        float, typer.Option(min=0.1, callback=flags.finite, help="of loads for the fit")
    ] = 3.0,
    block_size: Annotated[int, typer.Option(min=1, help="of the worker that is fitted")] = 16,
    out: flags.Out = Path("advise"),
    minutes: Annotated[
        float,
        typer.Option(
            min=0.0, callback=flags.finite, help="of fit and search; the live runs come after"
        ),
    ] = 5.0,
    fresh: flags.Fresh = False,
    as_json: flags.Json = False,
) -> None:
    """Which strategy, with which settings, serves a load best within an SLO: searched in simulation.

    Prints the `tokentide strategy set` that does it, and the evidence. With --profile and without
    --endpoint or --verify no stack is needed.
    """
    from tokentide.advisor.figures import Slo
    from tokentide.advisor.judging import Judge
    from tokentide.advisor.options import AdviseFlags
    from tokentide.advisor.output import advise as run
    from tokentide.bench.outputs import RunFlags
    from tokentide.bench.running import one_line_errors
    from tokentide.bench.serve_options import ServeFlags

    given = locals()
    known = {field.name for field in fields(ServeFlags)} - {"repeat"}
    chosen = {name: value for name, value in given.items() if name in known}
    serve = ServeFlags(**chosen, default_concurrency="32")
    named: dict[str, Any] = {
        "profile": profile,
        "num_workers": workers,
        "fit_minutes": fit_minutes,
        "block_size": block_size,
        "verify": verify,
        "repeat": repeat,
    }
    with one_line_errors():
        slo = Slo(ttft_s=_seconds(ttft_slo_ms), itl_s=_seconds(itl_slo_ms), percentile=percentile)
        judge = Judge(slo=slo, objective=objective)
        run_flags = RunFlags(out=out, minutes=minutes, fresh=fresh, as_json=as_json)
        run(AdviseFlags(**named, judge=judge, serve=serve), run_flags)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
