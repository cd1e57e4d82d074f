"""What each strategy made of the same requests: medians, ranges, ratios to static. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tokentide.bench import arrivals
from tokentide.bench.data_table import DataTable
from tokentide.bench.report import METHODS
from tokentide.bench.rows import Row
from tokentide.bench.statistics import ratio
from tokentide.bench.strategies import held_note, holds_answers
from tokentide.bench.subject import few_note
from tokentide.bench.summary import cell, summarize

SCHEMA = "tokentide.bench.compare/1"
TOKENS_PER_S = "throughput.generated_tokens_per_s"

# label, path in a run's figures, factor, decimals
FIGURES: tuple[tuple[str, str, float, int], ...] = (
    ("generated tokens/s", TOKENS_PER_S, 1, 1),
    ("requests/s", "throughput.requests_per_s", 1, 2),
    *arrivals.ROWS,
    ("duration, s", "duration_s", 1, 1),
    ("TTFT p50, ms", "latency_s.ttft.p50", 1e3, 0),
    ("TTFT p99, ms", "latency_s.ttft.p99", 1e3, 0),
    ("ITL p50, ms", "latency_s.itl.p50", 1e3, 1),
    ("ITL p99, ms", "latency_s.itl.p99", 1e3, 1),
    ("end-to-end p50, s", "latency_s.end_to_end.p50", 1, 2),
    ("end-to-end p99, s", "latency_s.end_to_end.p99", 1, 2),
    ("queue time p50, ms", "latency_s.queue_time.p50", 1e3, 0),
    ("batch size, time-weighted", "service.batch_size", 1, 1),
    ("KV cache use, %", "service.kv_cache_use", 100, 1),
    ("steps", "service.num_steps", 1, 0),
    ("step p50, ms", "steps_ms.total.p50", 1, 1),
    ("bubble share, %", "service.bubble_share", 100, 1),
)
WASTED: tuple[tuple[str, str, float, int], ...] = (
    ("held sequence-steps", "service.wasted.num_held_sequence_steps", 1, 0),
    ("held share, %", "service.wasted.held_share", 100, 1),
    ("recomputed tokens", "service.wasted.num_recomputed_tokens", 1, 0),
    ("replayed tokens", "service.wasted.num_replayed_tokens", 1, 0),
    ("tokens after a cancel", "service.wasted.num_tokens_after_cancel", 1, 0),
    ("expired prompt tokens", "service.wasted.num_expired_prompt_tokens", 1, 0),
)
MEDIANS = "medians of the runs, with their range"
RATIOS: tuple[tuple[str, str], ...] = (
    ("generated tokens/s", TOKENS_PER_S),
    ("tokens/s while they arrive", arrivals.TOKENS_PER_S),
    ("end-to-end p50", "latency_s.end_to_end.p50"),
    ("end-to-end p99", "latency_s.end_to_end.p99"),
    ("TTFT p50", "latency_s.ttft.p50"),
)


def compare_report(
    facts: Mapping[str, Any], labels: Sequence[str], rows: Sequence[Row], num_left: int
) -> dict[str, Any]:
    """`facts`: command, machine, model, settings. Strategies in the order of `labels`."""
    summary = {entry["case"]: entry for entry in summarize(rows)}
    strategies = [summary[label] for label in labels if label in summary]
    for entry in strategies:
        entry["ratio_to"] = {
            static["case"]: _ratios(entry["figures"], static["figures"])
            for static in strategies
            if is_static(static["case"])
        }
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "num_runs_left": num_left,
        "methods": METHODS,
        "strategies": strategies,
        "runs": list(rows),
    }


def is_static(label: str) -> bool:
    return label.partition(":")[0] == "static"


def tables_of(report: dict[str, Any]) -> list[DataTable]:
    """What each did, what each wasted, and the ratios to static."""
    strategies = report["strategies"]
    columns = ["", *(entry["case"] for entry in strategies)]
    note = _note(report["runs"])
    tables = [
        DataTable(columns=columns, rows=_lines(strategies, rows), title=title, note=MEDIANS)
        for title, rows in (("What each strategy did", FIGURES), ("Wasted work by cause", WASTED))
    ]
    statuses = sorted(
        {path for e in strategies for path in e["figures"] if path.startswith("statuses.")}
    )
    tables[0] = DataTable(
        columns=columns,
        rows=[
            *tables[0].rows,
            *_lines(
                strategies, [(f"requests {s.removeprefix('statuses.')}", s, 1, 0) for s in statuses]
            ),
        ],
        title=tables[0].title,
        note=note,
    )
    return [*tables, *_ratio_tables(strategies, columns)]


def _note(runs: Sequence[Row]) -> str:
    holding = (run["case"] for run in runs if holds_answers(run["settings"]))
    notes = (
        MEDIANS,
        few_note(min(run["num_requests"] for run in runs)),
        held_note(holding),
        arrivals.open_loop_note(runs),
    )
    return "; ".join(note for note in notes if note)


def _lines(
    strategies: Sequence[dict[str, Any]], rows: Sequence[tuple[str, str, float, int]]
) -> list[list[str]]:
    """Without those that nobody has."""
    lines = [
        [label, *(cell(e["figures"].get(path), factor, decimals) for e in strategies)]
        for label, path, factor, decimals in rows
    ]
    return [line for line in lines if any(line[1:])]


def _ratio_tables(strategies: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[DataTable]:
    statics = [entry["case"] for entry in strategies if is_static(entry["case"])]
    return [
        DataTable(
            columns=columns,
            rows=[
                [name, *(_ratio_text(e["ratio_to"][static].get(name)) for e in strategies)]
                for name, _ in RATIOS
                if any(e["ratio_to"][static].get(name) is not None for e in strategies)
            ],
            title=f"Ratio to {static}",
            note="of medians; above 1 is better for tokens/s, worse for times",
        )
        for static in statics
    ]


def _ratios(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float | None]:
    """Of an open loop's tokens/s only those while requests arrive: else the tails are compared."""
    is_open_loop = arrivals.TOKENS_PER_S in mine
    left_out = TOKENS_PER_S if is_open_loop else arrivals.TOKENS_PER_S
    return {
        name: ratio(mine[path]["median"], theirs[path]["median"])
        if path in mine and path in theirs
        else None
        for name, path in RATIOS
        if path != left_out
    }


def _ratio_text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
