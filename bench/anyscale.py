"""Anyscale's continuous-batching benchmark, simulated: `python -m bench.anyscale`.

Setup (anyscale.com/blog/continuous-batching-llm-inference, 2023; code at
anyscale/llm-continuous-batching-benchmarks): OPT-13B on one A100-40GB, 1,000 requests at once, prompts of
512 tokens, outputs exponential with mean 128, drawn again until within the cap. Static batches of 16, 12,
8 and 4 for the four caps. Their baseline pads every batch to the longest answer of the whole data set; a
batch-local one ends with its own longest. They counted prompt tokens as throughput.
"""

import argparse
import sys
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from shared.lengths import Lengths
from shared.profiles import load_profile
from shared.strategy import StrategySettings
from tokentide.bench.workload import WorkloadSpec, WorkRequest, make_workload
from tokentide.simulator.load import SimulatedLoad, SimulatedSetup, simulate_load

PROFILE = "a100-40gb-opt-13b"
STATIC_SIZES = {32: 16, 128: 12, 512: 8, 1536: 4}  # cap: batch size
NUM_REQUESTS = 1000
PROMPT_TOKENS = 512
TOKEN_BUDGET = 8700  # theirs for vLLM, of a batch
PUBLISHED = {
    1536: (1900.0, 81.0)
}  # tokens/s with prompts: vLLM, naive static (from the blog's text)


def requests_for(cap: int) -> list[WorkRequest]:
    size = STATIC_SIZES[cap]
    spec = WorkloadSpec(
        num_requests=-(-NUM_REQUESTS // size) * size,
        prompt_lengths=Lengths.parse(f"fixed:{PROMPT_TOKENS}"),
        output_lengths=Lengths.parse(f"exponential:128:{cap}"),
    )
    return make_workload(spec)


def seconds(requests: list[WorkRequest], settings: StrategySettings) -> float:
    """Until the last has ended."""
    args = ("--max-queued-requests", "100000", "--max-sequences", "512", "--claim-window", "512")
    setup = SimulatedSetup.of_args(load_profile(PROFILE), scheduler_args=args, strategy=settings)
    measured = simulate_load(setup, SimulatedLoad(requests=requests))
    assert all(o.status == "OK" for o in measured.observations)
    return measured.ended_s


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    table = Table(
        "cap",
        "mean out",
        "case",
        "seconds",
        "tokens/s with prompts",
        "generated tokens/s",
        "continuous is",
        title=f"{NUM_REQUESTS} requests, 512 in, {PROFILE}, simulated",
    )
    for cap, size in STATIC_SIZES.items():
        requests = requests_for(cap)
        longest = max(request.max_tokens for request in requests)
        padded = [replace(request, max_tokens=longest) for request in requests]
        static = StrategySettings(
            name="static", batch_size=size, chunk_size=-1, token_budget=TOKEN_BUDGET
        )
        continuous = StrategySettings(token_budget=TOKEN_BUDGET)
        found = {
            "continuous": seconds(requests, continuous),
            f"static {size}, batch-local": seconds(requests, static),
            f"static {size}, padded to {longest}": seconds(padded, static),
        }
        generated = sum(request.max_tokens for request in requests)
        total = generated + PROMPT_TOKENS * len(requests)
        best = found["continuous"]
        for case, took in found.items():
            cells = (f"{took:.0f}", f"{total / took:.0f}", f"{generated / took:.0f}")
            ratio = f"{took / best:.1f} x" if took is not best else ""
            table.add_row(str(cap), f"{generated / len(requests):.1f}", case, *cells, ratio)
        if cap in PUBLISHED:
            theirs, naive = PUBLISHED[cap]
            table.add_row(str(cap), "", "published: vLLM", "", f"{theirs:.0f}", "", "")
            table.add_row(
                str(cap),
                "",
                "published: naive static",
                "",
                f"{naive:.0f}",
                "",
                f"{theirs / naive:.1f} x",
            )
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
