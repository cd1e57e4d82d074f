"""The flags of the benchmarks and what they mean. Parsing only: nothing here starts anything."""

import math
from pathlib import Path
from typing import Annotated

import typer

MAX_PROMPT_TOKENS = 1_000_000  # a service takes no longer one


def finite(value: float | None) -> float | None:
    """Of a flag: NaN is below no bound and above none. Raises typer.BadParameter."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number")
    return value


Endpoint = Annotated[
    str, typer.Option(help="running schedulers, comma-separated; empty: start a local stack")
]
Operations = Annotated[str, typer.Option(help="their operators' ports, comma-separated")]
Model = Annotated[Path | None, typer.Option(help="model folder; none: the packaged model")]
KvMemory = Annotated[
    str,
    typer.Option(
        help="the local worker's KV cache, as 1GiB; empty: 1GiB (knee: 2GiB), if simulated the profile's"
    ),
]
WorkerArgs = Annotated[str, typer.Option(help="more flags for the local worker, in one string")]
SchedulerArgs = Annotated[str, typer.Option(help="flags for the local scheduler, in one string")]
Concurrency = Annotated[
    str | None,
    typer.Option(
        help="closed loop: requests at once; several, as 1,8,32, run in turn; none: 8, or arrivals"
    ),
]
OneConcurrency = Annotated[
    str | None, typer.Option(help="closed loop: requests at once; none: 32, or arrivals")
]
Rate = Annotated[
    float | None, typer.Option(help="open loop: arrivals a second; without --concurrency")
]
Burstiness = Annotated[
    float, typer.Option(help="of arrivals: 1 = Poisson, below burstier, above more even")
]
NumRequests = Annotated[
    int | None,
    typer.Option(min=1, help="requests a load; none: the concurrency, at least 4; arrivals: 256"),
]
PromptLengths = Annotated[
    str, typer.Option("--prompt", help="prompt lengths: fixed:N uniform:A-B exponential:MEAN:CAP")
]
OutputLengths = Annotated[
    str, typer.Option("--output", help="output lengths: the same, or lognormal:MEDIAN:SIGMA:CAP")
]
SharedPrefix = Annotated[int, typer.Option(help="tokens that all prompts begin with")]
Text = Annotated[bool, typer.Option("--text", help="words as prompts, not random token ids")]
IgnoreEos = Annotated[bool, typer.Option(help="outputs have exactly the length drawn")]
Vocabulary = Annotated[
    int | None, typer.Option(help="random ids are below this; none: the model folder says, or 1000")
]
Seed = Annotated[int, typer.Option(help="of the workload; the same seed gives the same requests")]
Workload = Annotated[
    Path | None, typer.Option(help="JSON lines: arrival_s, prompt or prompt_ids, max_tokens")
]
StepFile = Annotated[
    Path | None,
    typer.Option("--steps", help="a scheduler's --step-file: what it served, as it arrived"),
]
SaveWorkload = Annotated[Path | None, typer.Option(help="write the first load's requests there")]
Temperature = Annotated[float, typer.Option(callback=finite, help="0 = greedy")]
Warmup = Annotated[
    int | None, typer.Option(help="short requests before each load; none: the concurrency")
]
Cut = Annotated[
    float,
    typer.Option(min=0.0, callback=finite, help="seconds at a load's start that are not counted"),
]
Repeat = Annotated[int, typer.Option(min=1, help="runs of each case, in turn; medians are shown")]
Compare = Annotated[
    bool, typer.Option("--compare-transformers", help="the same requests in static batches too")
]
Json = Annotated[bool, typer.Option("--json", help="print the whole report as JSON")]
OutFile = Annotated[Path | None, typer.Option(help="write the whole report as JSON there")]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.0, callback=finite, help="stop after so long; the same command goes on later"
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="throw finished rows in --out away")]
Out = Annotated[Path, typer.Option(help="folder for rows, JSON, HTML and plots")]
Strategies = Annotated[
    str, typer.Option(help="as static:8,dynamic:16:max_queue_delay_ms=50,continuous:chunk_size=64")
]
BatchSizes = Annotated[str, typer.Option(help="sequences in a step")]
Contexts = Annotated[str, typer.Option(help="tokens of each sequence, a curve each")]
NumSteps = Annotated[int, typer.Option("--steps", min=1, help="steps measured at each point")]
Share = Annotated[
    float,
    typer.Option(
        callback=finite, help="of the linear slope: below it, the marginal gain makes a knee"
    ),
]
Profile = Annotated[str, typer.Option(help="roofline of a profile: a name or a file; none: probe")]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="steps that --profile predicts; no stack")
]
ChunkSizes = Annotated[
    str, typer.Option(help="chunk sizes; whole prefill always comes beside them")
]
NumDecodes = Annotated[int, typer.Option(min=1, help="sequences that decode meanwhile")]
LongPrompt = Annotated[
    int, typer.Option(min=1, max=MAX_PROMPT_TOKENS, help="tokens of the prompt that arrives")
]
ItlSlo = Annotated[
    float | None,
    typer.Option(min=0.0, callback=finite, help="longest p99 gap of those that decode, ms"),
]
TtftSlo = Annotated[
    float | None,
    typer.Option(
        min=0.0, callback=finite, help="longest wait of the prompt for its first token, ms"
    ),
]


def names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def numbers(text: str) -> tuple[int, ...]:
    """Raises ValueError with one line."""
    try:
        values = tuple(int(part) for part in names(text))
    except ValueError:
        raise ValueError(f"{text!r} is no list of numbers, as 1,8,32") from None
    if not values or min(values) < 1:
        raise ValueError(f"{text!r}: at least one number, all above 0")
    return values
