"""`tokentide bench`: the commands. What they do is imported when one is run."""

# ruff: noqa: PLC0415 (grpc, rich and matplotlib are not for --help)
# ruff: noqa: PLR0913, PLR0917 (a command's arguments are its flags)

from dataclasses import fields
from pathlib import Path

from tokentide.bench import flags, strategy_commands
from tokentide.commands.plain_app import plain_app

app = plain_app(help="Measure a stack.")
app.command()(strategy_commands.compare)
app.command()(strategy_commands.knee)
app.command()(strategy_commands.timeline)


@app.command()
def serve(
    endpoint: flags.Endpoint = "",
    operations: flags.Operations = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "",
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
    from tokentide.bench.load_report import run_and_show
    from tokentide.bench.running import one_line_errors
    from tokentide.bench.serve import run_serve
    from tokentide.bench.serve_options import ServeFlags, serve_options

    known = {field.name for field in fields(ServeFlags)}
    # All flags but the one about printing; naming each again would only invite a slip.
    given = {name: value for name, value in locals().items() if name in known}
    with one_line_errors():
        options = serve_options(ServeFlags(**given))
        run_and_show(options, lambda kept: lambda progress: run_serve(kept, progress), as_json)


@app.command()
def chunk(
    endpoint: flags.Endpoint = "",
    operations: flags.Operations = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "",
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    sizes: flags.ChunkSizes = "16,32,64,128,256",
    num_decodes: flags.NumDecodes = 8,
    long_prompt: flags.LongPrompt = 4000,
    vocabulary: flags.Vocabulary = None,
    itl_slo_ms: flags.ItlSlo = None,
    ttft_slo_ms: flags.TtftSlo = None,
    seed: flags.Seed = 0,
    repeat: flags.Repeat = 1,
    out: flags.Out = Path("bench-chunk"),
    minutes: flags.Minutes = None,
    fresh: flags.Fresh = False,
    as_json: flags.Json = False,
) -> None:
    """A long prompt arrives while others decode: what each chunk size costs whom.

    The inter-token gaps of those that decode, against the long prompt's time to first token. With an SLO:
    which size meets it.
    """
    from tokentide.bench.chunk import ChunkOptions
    from tokentide.bench.chunk_report import Slo
    from tokentide.bench.chunk_tool import chunk_tool, with_whole
    from tokentide.bench.outputs import RunFlags
    from tokentide.bench.running import one_line_errors
    from tokentide.bench.serve_options import TargetFlags, known_vocabulary, target_spec
    from tokentide.bench.tool import run_tool

    known = {field.name for field in fields(TargetFlags)}
    target = TargetFlags(**{name: value for name, value in locals().items() if name in known})
    run_flags = RunFlags(out=out, minutes=minutes, fresh=fresh, as_json=as_json)
    slo = Slo(
        itl_s=None if itl_slo_ms is None else itl_slo_ms / 1e3,
        ttft_s=None if ttft_slo_ms is None else ttft_slo_ms / 1e3,
    )
    with one_line_errors():
        spec = target_spec(target)
        options = ChunkOptions(
            target=spec,
            sizes=with_whole(sizes),
            num_decodes=num_decodes,
            num_prompt_tokens=long_prompt,
            vocabulary=vocabulary or known_vocabulary(spec),
            seed=seed,
            repeat=repeat,
        )
        run_tool(chunk_tool(options, slo), run_flags)
