"""`tokentide bench`: the commands. What they do is imported when one is run."""

# ruff: noqa: PLC0415 (grpc, rich and matplotlib are not for --help)
# ruff: noqa: PLR0913, PLR0917 (a command's arguments are its flags)

from dataclasses import fields
from functools import partial
from pathlib import Path

import typer

from tokentide.bench import flags

app = typer.Typer(help="Measure a stack.", no_args_is_help=True)


@app.command()
def serve(
    endpoint: flags.Endpoint = "",
    operations: flags.Operations = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "1GiB",
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    concurrency: flags.Concurrency = "8",
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
    save_workload: flags.SaveWorkload = None,
    temperature: flags.Temperature = 0.0,
    warmup: flags.Warmup = None,
    cut_s: flags.Cut = 0.0,
    repeat: flags.Repeat = 1,
    compare_transformers: flags.Compare = False,
    as_json: flags.Json = False,
    out_file: flags.OutFile = None,
) -> None:
    """Load a stack, open loop (--rate) or closed loop (--concurrency), and report what it did.

    Without --endpoint it starts a local stack on --model and stops it at the end.
    """
    from tokentide.bench.running import one_line_errors, run_shown, show
    from tokentide.bench.serve import run_serve
    from tokentide.bench.serve_options import ServeFlags, serve_options
    from tokentide.bench.summary import table_of

    known = {field.name for field in fields(ServeFlags)}
    # All flags but the one about printing; naming each again would only invite a slip.
    given = {name: value for name, value in locals().items() if name in known}
    with one_line_errors():
        options = serve_options(ServeFlags(**given))
        report = run_shown(lambda progress: run_serve(options, progress))
    show(report, table_of(report), as_json=as_json)
    if not any(run["statuses"].get("OK") for run in report["runs"]):
        raise typer.Exit(1)


@app.command()
def chunk(
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "1GiB",
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    sizes: flags.ChunkSizes = "16,32,64,128,256",
    num_decodes: flags.NumDecodes = 8,
    long_prompt: flags.LongPrompt = 4000,
    seed: flags.Seed = 0,
    repeat: flags.Repeat = 1,
    out: flags.OutDir = Path("bench-chunk"),
    as_json: flags.Json = False,
) -> None:
    """A long prompt arrives while others decode: what each chunk size costs whom.

    The worst inter-token gap of those that decode, against the long prompt's time to first token.
    """
    from tokentide.bench.chunk import chunk_options, run_chunk
    from tokentide.bench.chunk_plot import plot
    from tokentide.bench.chunk_report import table_of
    from tokentide.bench.running import one_line_errors, run_shown, show, write_report
    from tokentide.bench.serve_options import TargetFlags

    target = TargetFlags(
        model=model, kv_memory=kv_memory, worker_args=worker_args, scheduler_args=scheduler_args
    )
    with one_line_errors():
        options = chunk_options(
            target,
            sizes=sizes,
            num_decodes=num_decodes,
            num_prompt_tokens=long_prompt,
            seed=seed,
            repeat=repeat,
        )
        out.mkdir(parents=True, exist_ok=True)
        keep = partial(write_report, out / "chunk.json")
        report = run_shown(lambda progress: run_chunk(options, progress, keep))
        plot(report, out)
    show(report, table_of(report), as_json=as_json)
