"""Figures of one load, from what clients saw and what the service counted. Pure arithmetic."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokentide.bench import arrivals
from tokentide.bench.load import OK, Observation
from tokentide.bench.operations_watch import Steps
from tokentide.bench.statistics import PERCENTILE_METHOD, Summary, ratio
from tokentide.commands.readings import Totals

SCHEMA = "tokentide.bench.serve/1"

METHODS = {
    "percentiles": PERCENTILE_METHOD,
    "latencies": "from the moment a request was due (open loop: its arrival) at the client",
    "ttft": "until the first chunk that carries tokens",
    "itl": "one value a token after the first chunk; a chunk of k tokens counts as k equal gaps of 1/k "
    "of the time since the chunk before; tokens that share the first chunk have no gap",
    "chunk_gap": "time between two chunks as they came, nothing spread: what a reader waits",
    "queue_time": "until the first step that holds the request began: arrival of the step's record "
    "here minus the step's own duration",
    "batch_size": "sequences in a step, weighted by step time, per worker",
    "kv_cache_use": "held blocks of all blocks, weighted by step time, per worker",
    "bubble_share": "idle time between steps while there was work, of that plus step time",
    "generated_tokens_per_s": "tokens that reached clients, from the start (after the cut) to the last end, "
    "the tail after the last arrival included",
    "arrivals": arrivals.METHOD,
    "held_share": "steps in which an ended member kept its place in a batch, of these and of those that "
    "sampled a token",
    "prompt_tokens_per_s": "prompt tokens computed for the first time; cached ones are apart",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything about one load. `started_s` is its start, or the end of the cut."""

    observations: Sequence[Observation]
    started_s: float
    totals: Totals | None  # None: nobody watched the service
    steps: Steps
    blocks_per_worker: float
    is_open_loop: bool = False  # requests arrived by themselves

    @property
    def ended_s(self) -> float:
        return max(o.ended_s for o in self.observations)


def figures(measured: Measured) -> dict[str, Any]:
    counted = [o for o in measured.observations if o.due_s >= measured.started_s]
    duration_s = measured.ended_s - measured.started_s
    return {
        "duration_s": duration_s,
        "num_requests": len(counted),
        "num_cut_requests": len(measured.observations) - len(counted),
        "statuses": dict(Counter(o.status for o in counted)),
        "throughput": _throughput(measured, duration_s),
        "arrivals": arrivals.arrival_figures(measured.observations, measured.started_s)
        if measured.is_open_loop
        else None,
        "latency_s": {name: s.as_dict() for name, s in _latencies(counted, measured).items()},
        "tokens_per_chunk": _tokens_per_chunk(counted),
        "service": _service(measured.totals, measured.blocks_per_worker)
        if measured.totals
        else None,
        "steps_ms": _steps_ms(measured.steps),
    }


def token_gaps(arrivals: Sequence[tuple[float, int]]) -> list[float]:
    """Inter-token latencies: k tokens in one chunk share the time since the chunk before equally."""
    gaps: list[float] = []
    for gap_s, (_, num_tokens) in zip(chunk_gaps(arrivals), arrivals[1:], strict=True):
        gaps += [gap_s / num_tokens] * num_tokens
    return gaps


def chunk_gaps(arrivals: Sequence[tuple[float, int]]) -> list[float]:
    times = [at for at, _ in arrivals]
    return [later - earlier for earlier, later in pairwise(times)]


def _throughput(measured: Measured, duration_s: float) -> dict[str, Any]:
    num_generated = sum(
        num_tokens
        for o in measured.observations
        for at, num_tokens in o.arrivals
        if at >= measured.started_s
    )
    num_finished = sum(
        o.status == OK and o.ended_s >= measured.started_s for o in measured.observations
    )
    rates: dict[str, Any] = {
        "num_generated_tokens": num_generated,
        "generated_tokens_per_s": ratio(num_generated, duration_s),
        "requests_per_s": ratio(num_finished, duration_s),
    }
    for name in ("prompt", "recomputed", "cached"):  # only the service knows these
        totals = measured.totals
        num_tokens: int = getattr(totals, f"num_{name}_tokens", 0)
        rates[f"num_{name}_tokens"] = num_tokens if totals else None
        rates[f"{name}_tokens_per_s"] = ratio(num_tokens, duration_s) if totals else None
    return rates


def _latencies(counted: Sequence[Observation], measured: Measured) -> Mapping[str, Summary]:
    good = [o for o in counted if o.status == OK]
    began_s = measured.steps.first_in_step_s
    return {
        "ttft": Summary.of(o.first_token_s - o.due_s for o in good if o.first_token_s is not None),
        "itl": Summary.of(gap for o in good for gap in token_gaps(o.arrivals)),
        "chunk_gap": Summary.of(gap for o in good for gap in chunk_gaps(o.arrivals)),
        "end_to_end": Summary.of(o.ended_s - o.due_s for o in good),
        "queue_time": Summary.of(
            max(0.0, began_s[o.request_id] - o.due_s) for o in good if o.request_id in began_s
        ),
    }


def _tokens_per_chunk(counted: Sequence[Observation]) -> float | None:
    sizes = [num_tokens for o in counted for _, num_tokens in o.arrivals]
    return ratio(sum(sizes), len(sizes))


def _service(totals: Totals, blocks_per_worker: float) -> dict[str, Any]:
    prompt_tokens = totals.num_prompt_tokens + totals.num_cached_tokens
    held_blocks = ratio(totals.held_blocks_ns, totals.busy_ns)
    return {
        "num_steps": totals.num_steps,
        "num_preemptions": totals.num_preemptions,
        "num_sampled_tokens": totals.num_sampled_tokens,
        "batch_size": ratio(totals.batch_size_ns, totals.busy_ns),
        "kv_cache_use": ratio(held_blocks or 0.0, blocks_per_worker),
        "bubble_share": ratio(totals.bubble_ns, totals.bubble_ns + totals.busy_ns),
        "busy_s": totals.busy_ns / 1e9,
        "bubble_s": totals.bubble_ns / 1e9,
        "plan_ms_per_step": ratio(totals.plan_ns / 1e6, totals.num_steps),
        "commit_ms_per_commit": ratio(totals.commit_ns / 1e6, totals.num_commits),
        "num_commits": totals.num_commits,
        "prefix_cache_hit_share": ratio(totals.num_cached_tokens, prompt_tokens),
        "wasted": _wasted(totals),
    }


def _wasted(totals: Totals) -> dict[str, Any]:
    """Work that nobody wanted, by cause."""
    held = totals.num_held_sequence_steps
    return {
        "num_held_sequence_steps": held,
        # a step of a decoding sequence samples one token
        "arrivals": arrivals.METHOD,
        "held_share": ratio(held, held + totals.num_sampled_tokens),
        "num_recomputed_tokens": totals.num_recomputed_tokens,
        "num_replayed_tokens": totals.num_replayed_tokens,
        "num_tokens_after_cancel": totals.num_tokens_after_cancel,
        "num_expired_prompt_tokens": totals.num_expired_prompt_tokens,
    }


def _steps_ms(steps: Steps) -> dict[str, Any]:
    """Where a step's own time went, as the worker says."""
    parts = {
        "prepare": steps.prepare_ns,
        "forward": steps.forward_ns,
        "sample": steps.sample_ns,
        "total": steps.total_ns,
    }
    return {name: Summary.of(ns / 1e6 for ns in values).as_dict() for name, values in parts.items()}
