"""`tokentide demo`: eight prompts through a stack of real processes, shown step by step, and what it took.

Then the same once more, with processes killed in mid-stream.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tokentide.client import Client
from tokentide.commands.operations_client import OperationsClient
from tokentide.commands.readings import Totals, percentile, sum_of
from tokentide.demo_kills import run_kills
from tokentide.demo_prompts import DEMO_PROMPTS
from tokentide.demo_round import Talk, converse
from tokentide.demo_show import shown
from tokentide.live_view import rate
from tokentide.local_stack import LocalStack, Report, StackSpec, local_stack
from tokentide.models import packaged_model_dir
from tokentide.plain_lines import print_line

NUM_WORKERS = 2
TOKEN_BUDGET = 192  # small, so that the long prompt is seen to be cut
KV_MEMORY = "256MiB"


async def run_demo(console: Console) -> int:
    def report(message: str) -> None:
        print_line(console, f"  {message}")

    spec = StackSpec(
        model_dir=packaged_model_dir(progress=report),
        num_workers=NUM_WORKERS,
        num_schedulers=2,
        worker_args=("--kv-memory", KV_MEMORY, "--threads", str(threads_each())),
        scheduler_args=("--token-budget", str(TOKEN_BUDGET)),
    )
    console.print("Tokentide demo: one store, two workers, two schedulers", style="bold")
    async with local_stack(spec, report) as stack, Client(stack.endpoints) as client:
        talks = [Talk(prompt) for prompt in DEMO_PROMPTS]
        summary = await stack.run(_calm_round(stack, client, talks, console, report))
        for name, value in summary.rows():
            report(f"{name:<23}{value}")
        is_undisturbed = await run_kills(stack, client, talks, console, report)
    console.print("all processes have ended", style="dim")
    return 0 if is_undisturbed else 1


def threads_each() -> int:
    """The workers share the cores; what they answer does not depend on it."""
    return max(len(os.sched_getaffinity(0)) // NUM_WORKERS, 1)


async def _calm_round(
    stack: LocalStack, client: Client, talks: Sequence[Talk], console: Console, report: Report
) -> "Summary":
    report("warming up with one short request")
    async for _ in client.generate("Hello", max_tokens=1):
        pass
    before = await _totals(stack)
    report(f"sending {len(talks)} prompts at once; at most {TOKEN_BUDGET} tokens in a step\n")
    async with shown(console, talks) as show:
        wall_s = await converse(stack, client, talks, (show,))
    after = await _totals(stack)
    return Summary.of(talks, after.since(before), wall_s)


async def _totals(stack: LocalStack) -> Totals:
    each: list[Totals] = []
    for endpoint in stack.operations_endpoints:
        async with OperationsClient(endpoint) as operations:
            each.append((await operations.loads()).totals)
    return sum_of(each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    wall_s: float
    num_generated: int
    totals: Totals
    ttfts_s: list[float]
    gaps_s: list[float]

    @classmethod
    def of(cls, talks: Sequence[Talk], totals: Totals, wall_s: float) -> "Summary":
        return cls(
            wall_s=wall_s,
            num_generated=sum(talk.num_tokens for talk in talks),
            totals=totals,
            ttfts_s=[talk.ttft_s for talk in talks if talk.ttft_s is not None],
            gaps_s=[gap for talk in talks for gap in talk.gaps_s],
        )

    def rows(self) -> list[tuple[str, str]]:
        totals = self.totals
        return [
            ("wall time", f"{self.wall_s:.1f} s, {totals.num_steps} steps"),
            (
                "generated",
                f"{rate(self.num_generated, self.wall_s)} tokens/s ({self.num_generated})",
            ),
            (
                "prompt",
                f"{rate(totals.num_prompt_tokens, self.wall_s)} tokens/s ({totals.num_prompt_tokens} computed,"
                f" {totals.num_cached_tokens} cached)",
            ),
            ("time to first token", _spread(self.ttfts_s)),
            ("inter-token latency", _spread(self.gaps_s)),
            ("recomputed", f"{totals.num_recomputed_tokens} tokens"),
            ("worker idle with work", f"{totals.bubble_share:.2%} of the time"),
            ("mean batch size", f"{totals.mean_batch_size:.1f} sequences"),
        ]


def _spread(values_s: list[float]) -> str:
    p50, p99 = (1e3 * percentile(values_s, share) for share in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"
