"""`tokentide bench compare|knee|timeline`: the commands. What they do is imported when one is run."""

# ruff: noqa: PLC0415 (grpc, rich and matplotlib are not for --help)
# ruff: noqa: PLR0913, PLR0917 (a command's arguments are its flags)

from dataclasses import fields
from pathlib import Path

from tokentide.bench import flags

MANY_AT_ONCE = 1000  # of a workload file: more than anybody wants to see in a figure


def compare(
    endpoint: flags.Endpoint = "",
    operations: flags.Operations = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "",
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    strategies: flags.Strategies = "static:8,static:16,static:32,dynamic,continuous",
    concurrency: flags.OneConcurrency = None,
    rate: flags.Rate = None,
    burstiness: flags.Burstiness = 1.0,
    num_requests: flags.NumRequests = None,
    prompt: flags.PromptLengths = "uniform:32-128",
    output: flags.OutputLengths = "exponential:64:256",
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
    repeat: flags.Repeat = 3,
    out: flags.Out = Path("bench-compare"),
    minutes: flags.Minutes = None,
    fresh: flags.Fresh = False,
    as_json: flags.Json = False,
) -> None:
    """The same requests through each batching strategy on one live stack.

    Without --endpoint it starts a local stack on --model and stops it at the end.
    """
    from tokentide.bench.compare_tool import compare_options, compare_tool
    from tokentide.bench.outputs import RunFlags
    from tokentide.bench.running import one_line_errors
    from tokentide.bench.serve_options import ServeFlags
    from tokentide.bench.tool import run_tool

    known = {field.name for field in fields(ServeFlags)}
    given = {name: value for name, value in locals().items() if name in known}
    run_flags = RunFlags(out=out, minutes=minutes, fresh=fresh, as_json=as_json)
    with one_line_errors():
        options = compare_options(ServeFlags(**given, default_concurrency="32"), strategies)
        run_tool(compare_tool(options), run_flags)


def knee(
    endpoint: flags.Endpoint = "",
    operations: flags.Operations = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "",
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    batch_sizes: flags.BatchSizes = "1,2,4,8,16,32,64",
    contexts: flags.Contexts = "64,512",
    num_steps: flags.NumSteps = 24,
    vocabulary: flags.Vocabulary = None,
    share: flags.Share = 0.5,
    profile: flags.Profile = "",
    simulate: flags.Simulate = False,
    seed: flags.Seed = 0,
    repeat: flags.Repeat = 1,
    out: flags.Out = Path("bench-knee"),
    minutes: flags.Minutes = None,
    fresh: flags.Fresh = False,
    as_json: flags.Json = False,
) -> None:
    """Throughput and step time over batch size: where a larger batch stops paying.

    The knee is the smallest batch from which the next one gains, per added sequence, less than --share of
    tokens/s per sequence at the smallest batch. Beside it the roofline of this machine, or of a profile.
    """
    from tokentide.bench.knee import KneePlan
    from tokentide.bench.knee_tool import knee_options, knee_tool
    from tokentide.bench.outputs import RunFlags
    from tokentide.bench.running import one_line_errors
    from tokentide.bench.serve_options import TargetFlags
    from tokentide.bench.tool import run_tool

    known = {field.name for field in fields(TargetFlags)}
    given = {name: value for name, value in locals().items() if name in known}
    target = TargetFlags(**given, default_kv_memory="2GiB")
    run_flags = RunFlags(out=out, minutes=minutes, fresh=fresh, as_json=as_json)
    with one_line_errors():
        plan = KneePlan(
            batch_sizes=flags.numbers(batch_sizes),
            contexts=flags.numbers(contexts),
            num_steps=num_steps,
            repeat=repeat,
            seed=seed,
        )
        options = knee_options(
            target, plan, profile=profile, simulate=simulate, vocabulary=vocabulary, share=share
        )
        run_tool(knee_tool(options), run_flags)


def timeline(
    endpoint: flags.Endpoint = "",
    operations: flags.Operations = "",
    model: flags.Model = None,
    kv_memory: flags.KvMemory = "",
    worker_args: flags.WorkerArgs = "",
    scheduler_args: flags.SchedulerArgs = "",
    strategies: flags.Strategies = "static:4,dynamic:4,continuous:max_sequences=4",
    num_requests: flags.NumRequests = 12,
    rate: flags.Rate = None,
    burstiness: flags.Burstiness = 1.0,
    prompt: flags.PromptLengths = "uniform:64-256",
    output: flags.OutputLengths = "exponential:32:96",
    shared_prefix: flags.SharedPrefix = 0,
    text: flags.Text = False,
    ignore_eos: flags.IgnoreEos = True,
    vocabulary: flags.Vocabulary = None,
    seed: flags.Seed = 0,
    workload: flags.Workload = None,
    save_workload: flags.SaveWorkload = None,
    temperature: flags.Temperature = 0.0,
    warmup: flags.Warmup = 4,
    out: flags.Out = Path("bench-timeline"),
    minutes: flags.Minutes = None,
    fresh: flags.Fresh = False,
    as_json: flags.Json = False,
) -> None:
    """One bar a request over time, one panel a strategy, from a real run on the same arrivals.

    All requests arrive at once, or with --rate.
    """
    from tokentide.bench.compare_tool import compare_options
    from tokentide.bench.outputs import RunFlags
    from tokentide.bench.running import one_line_errors
    from tokentide.bench.serve_options import ServeFlags
    from tokentide.bench.timeline_tool import timeline_tool
    from tokentide.bench.tool import run_tool

    known = {field.name for field in fields(ServeFlags)}
    given = {name: value for name, value in locals().items() if name in known}
    run_flags = RunFlags(out=out, minutes=minutes, fresh=fresh, as_json=as_json)
    with one_line_errors():
        if workload:
            num_requests = None
        given |= {"num_requests": num_requests}
        at_once = str(num_requests or MANY_AT_ONCE)
        options = compare_options(ServeFlags(**given, default_concurrency=at_once), strategies)
        run_tool(timeline_tool(options), run_flags)
