"""The six workloads: what is asked of every system, drawn from seeds. Knows nothing of the systems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.lengths import Lengths
from tokentide.bench.workload import WorkloadSpec, WorkRequest, make_workload

SEED_STRIDE = 1000  # between workloads: their prompts must not meet in a prefix cache
WARM_UP_SEED = 1 << 40
QUARTER = 4

NUM_DECODES = 8  # of the long-prompt workload
DECODE_PROMPT = 16
NUM_BEFORE = 16  # tokens of each decode before the long prompt comes
MAX_DECODE_TOKENS = 1024  # more than any of them gets
LONG_PROMPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    title: str
    spec: WorkloadSpec
    max_length: int  # most tokens of one request, prompt and output
    is_swept: bool = False  # over each system's step-token settings
    is_long_prompt: bool = False
    has_arrivals: bool = False  # at a share of the best peer's capacity

    @property
    def num_sequences(self) -> int:
        return self.spec.num_requests


def _spec(num_requests: int, prompt: str, output: str, shared_prefix: int = 0) -> WorkloadSpec:
    return WorkloadSpec(
        num_requests=num_requests,
        prompt_lengths=Lengths.parse(prompt),
        output_lengths=Lengths.parse(output),
        shared_prefix=shared_prefix,
    )


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        name="one",
        title="one stream, 128 in, 128 out",
        spec=_spec(1, "fixed:128", "fixed:128"),
        max_length=256,
    ),
    Workload(
        name="32",
        title="32 at once, 128 in, 128 out",
        spec=_spec(32, "fixed:128", "fixed:128"),
        max_length=256,
    ),
    Workload(
        name="64",
        title="64 at once, 32-256 in, out exponential (mean 128, cap 512)",
        spec=_spec(64, "uniform:32-256", "exponential:128:512"),
        max_length=768,
    ),
    Workload(
        name="prefix",
        title="64 at once, 512 shared + 32 own in, 32 out",
        spec=_spec(64, "fixed:32", "fixed:32", shared_prefix=512),
        max_length=576,
    ),
    Workload(
        name="poisson",
        title="32 Poisson arrivals, lengths as above",
        spec=_spec(32, "uniform:32-256", "exponential:128:512"),
        max_length=768,
        has_arrivals=True,
    ),
    Workload(
        name="long",
        title="8 decodes, a 4,096-token prompt arrives",
        spec=_spec(NUM_DECODES + 1, f"fixed:{DECODE_PROMPT}", "fixed:1"),
        max_length=LONG_PROMPT + 256,
        is_swept=True,
        is_long_prompt=True,
    ),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
CAPACITY_WORKLOAD = "64"  # whose best peer's requests/s set the arrivals' rate


def requests_of(
    workload: Workload, *, repeat: int, vocabulary: int, rate: float | None = None
) -> list[WorkRequest]:
    """The same for every system; other prompts in another repeat. The long prompt comes last."""
    index = WORKLOADS.index(workload)
    spec = replace(
        workload.spec, vocabulary=vocabulary, rate=rate, seed=index * SEED_STRIDE + repeat
    )
    requests = make_workload(spec)
    if not workload.is_long_prompt:
        return requests
    long = replace(spec, num_requests=1, prompt_lengths=Lengths.parse(f"fixed:{LONG_PROMPT}"))
    long = replace(long, seed=spec.seed + SEED_STRIDE // 2)
    decodes = [replace(request, max_tokens=MAX_DECODE_TOKENS) for request in requests[:-1]]
    return [*decodes, *make_workload(long)]


def quarter_of(requests: Sequence[WorkRequest]) -> list[WorkRequest]:
    """A quarter of the requests; of a single one, a quarter of its output."""
    if len(requests) >= QUARTER:
        return list(requests[: len(requests) // QUARTER])
    return [replace(r, max_tokens=max(1, r.max_tokens // QUARTER)) for r in requests]


def warm_up_requests(number: int, *, vocabulary: int) -> list[WorkRequest]:
    """Other, short requests: what a system does once is not to be measured."""
    spec = replace(_spec(number, "fixed:64", "fixed:8"), vocabulary=vocabulary, seed=WARM_UP_SEED)
    return make_workload(spec)
