"""Repeated runs as medians with ranges, and as one table. Knows nothing of how they were made."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from tokentide.bench import arrivals
from tokentide.bench.statistics import median
from tokentide.bench.subject import few_note, load_text

NOT_FIGURES = frozenset({"case", "concurrency", "repeat", "load_average_before"})

# label, path in a run, factor, decimals
ROWS: tuple[tuple[str, str, float, int], ...] = (
    ("generated tokens/s", "throughput.generated_tokens_per_s", 1, 1),
    ("transformers generate, tokens/s", "transformers.generated_tokens_per_s", 1, 1),
    ("ratio to transformers", "transformers.ratio", 1, 2),
    ("outputs equal to transformers'", "transformers.num_equal_outputs", 1, 0),
    ("prompt tokens/s", "throughput.prompt_tokens_per_s", 1, 1),
    ("recomputed tokens/s", "throughput.recomputed_tokens_per_s", 1, 1),
    ("requests/s", "throughput.requests_per_s", 1, 2),
    *arrivals.ROWS,
    ("TTFT p50, ms", "latency_s.ttft.p50", 1e3, 0),
    ("TTFT p90, ms", "latency_s.ttft.p90", 1e3, 0),
    ("TTFT p99, ms", "latency_s.ttft.p99", 1e3, 0),
    ("ITL mean, ms", "latency_s.itl.mean", 1e3, 1),
    ("ITL p50, ms", "latency_s.itl.p50", 1e3, 1),
    ("ITL p90, ms", "latency_s.itl.p90", 1e3, 1),
    ("ITL p99, ms", "latency_s.itl.p99", 1e3, 1),
    ("tokens per chunk", "tokens_per_chunk", 1, 2),
    ("end-to-end p50, s", "latency_s.end_to_end.p50", 1, 2),
    ("end-to-end p90, s", "latency_s.end_to_end.p90", 1, 2),
    ("end-to-end p99, s", "latency_s.end_to_end.p99", 1, 2),
    ("queue time p50, ms", "latency_s.queue_time.p50", 1e3, 0),
    ("queue time p99, ms", "latency_s.queue_time.p99", 1e3, 0),
    ("preemptions", "service.num_preemptions", 1, 0),
    ("steps", "service.num_steps", 1, 0),
    ("batch size, time-weighted", "service.batch_size", 1, 1),
    ("KV cache use, %", "service.kv_cache_use", 100, 1),
    ("prefix cache hits, %", "service.prefix_cache_hit_share", 100, 1),
    ("bubble share, %", "service.bubble_share", 100, 1),
    ("planning, ms a step", "service.plan_ms_per_step", 1, 2),
    ("commit, ms each", "service.commit_ms_per_commit", 1, 2),
    ("step: forward p50, ms", "steps_ms.forward.p50", 1, 1),
    ("step: whole p50, ms", "steps_ms.total.p50", 1, 1),
)


def summarize(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a case: median, least and greatest of every figure over the repeats."""
    cases: dict[str, list[dict[str, float]]] = {}
    for run in runs:
        figures = {k: v for k, v in run.items() if k not in NOT_FIGURES}
        cases.setdefault(run["case"], []).append(dict(_flat("", figures)))
    return [{"case": case, "figures": _spread(several)} for case, several in cases.items()]


def table_of(report: dict[str, Any]) -> Table:
    """Cases side by side: the median, and the range where there were repeats."""
    summary = report["summary"]
    table = Table(title=escape(report["subject"]), caption=escape(_notes(report)) or None)
    table.add_column("")
    for case in summary:
        table.add_column(escape(case["case"]), justify="right", overflow="fold")
    for label, path, factor, decimals in ROWS:
        cells = [cell(case["figures"].get(path), factor, decimals) for case in summary]
        if any(cells):
            table.add_row(label, *cells)
    statuses = sorted({p for case in summary for p in case["figures"] if p.startswith("statuses.")})
    for path in statuses:
        cells = [cell(case["figures"].get(path), 1, 0) for case in summary]
        table.add_row(f"requests {path.removeprefix('statuses.')}", *cells)
    return table


def _notes(report: dict[str, Any]) -> str:
    num_requests = min(run["num_requests"] for run in report["runs"])
    notes = (
        few_note(num_requests),
        arrivals.open_loop_note(report["runs"]),
        report.get("note", ""),
        # On a virtual clock the load of the host changes nothing.
        "" if report["stack"].get("simulated") else load_text(report["runs"], report["machine"]),
    )
    return "; ".join(note for note in notes if note)


def cell(spread: dict[str, float] | None, factor: float, decimals: int) -> str:
    if spread is None:
        return ""
    text = f"{spread['median'] * factor:,.{decimals}f}"
    if spread["min"] != spread["max"]:
        low, high = (f"{spread[end] * factor:,.{decimals}f}" for end in ("min", "max"))
        text += f" ({low}-{high})"
    return text


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in nested dictionaries, by dotted path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, inner)
    elif isinstance(value, int | float):
        yield prefix, float(value)


def _spread(several: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    spreads = {}
    for path in dict.fromkeys(path for figures in several for path in figures):
        values = [figures[path] for figures in several if path in figures]
        spreads[path] = {"median": median(values), "min": min(values), "max": max(values)}
    return spreads
