"""Throughput over batch size with its knee, beside what the roofline allows. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from shared.cost_model import CostModel
from tokentide.bench.data_table import DataTable
from tokentide.bench.decode_steps import decode_step_ns
from tokentide.bench.knee_rule import Throughput, find_knee
from tokentide.bench.rows import Row
from tokentide.bench.statistics import PERCENTILE_METHOD, median

SCHEMA = "tokentide.bench.knee/1"
METHODS = {
    "percentiles": PERCENTILE_METHOD,
    "step_ms": "own time of steps in which exactly so many sequences each got one token, as the worker "
    "measured it (step records); the first two are left out; medians over the repeats",
    "tokens_per_s": "batch size over the median step: what the engine yields when it never waits",
    "knee": "smallest batch from which the next measured one gains, per added sequence, less than `share` "
    "of tokens/s per sequence at the smallest batch",
    "roofline": "weights and cache read at full bandwidth, or computed at full rate, whichever takes longer",
    "ridge": "tokens in a step beyond which computing takes longer than reading the weights",
}


def knee_report(
    facts: Mapping[str, Any],
    rows: Sequence[Row],
    num_left: int,
    *,
    share: float,
    roofline: CostModel | None,
    roofline_source: str,
) -> dict[str, Any]:
    """Without a roofline there is none in the report."""
    contexts = sorted({row["context"] for row in rows})
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "num_runs_left": num_left,
        "share": share,
        "methods": METHODS,
        "roofline": {"source": roofline_source, "ridge": roofline.free_tokens}
        if roofline
        else None,
        "contexts": [_context(context, rows, share, roofline) for context in contexts],
        "runs": list(rows),
    }


def tables_of(report: dict[str, Any]) -> list[DataTable]:
    return [_table(entry, report) for entry in report["contexts"]]


def knee_text(entry: Mapping[str, Any], key: str = "knee") -> str:
    size = entry[key]
    return f"knee at {size}" if size is not None else "no knee among the batches measured"


def _context(
    context: int, rows: Sequence[Row], share: float, roofline: CostModel | None
) -> dict[str, Any]:
    mine = [row for row in rows if row["context"] == context]
    with_steps = [row for row in mine if row["step_ms"]["count"]]
    sizes = sorted({row["batch_size"] for row in with_steps})
    points = [_point(size, context, with_steps, roofline) for size in sizes]
    entry: dict[str, Any] = {
        "context": context,
        "points": points,
        "sizes_without_steps": sorted({row["batch_size"] for row in mine} - set(sizes)),
        "knee": None,
        "roofline_knee": None,
    }
    for key, name in (("knee", "tokens_per_s"), ("roofline_knee", "roofline_tokens_per_s")):
        throughputs = [
            Throughput(batch_size=point["batch_size"], tokens_per_s=point[name])
            for point in points
            if point[name] is not None
        ]
        if throughputs:
            knee = find_knee(throughputs, share)
            entry[key] = knee.batch_size
            gains = dict(knee.marginal_gains)
            for point in points:
                gain = gains.get(point["batch_size"])
                point[f"{key}_gain_share"] = None if gain is None else gain / knee.linear_slope
    return entry


def _point(
    size: int, context: int, rows: Sequence[Row], roofline: CostModel | None
) -> dict[str, Any]:
    medians_ms = [row["step_ms"]["p50"] for row in rows if row["batch_size"] == size]
    step_ms = median(medians_ms)
    roofline_ms = decode_step_ns(roofline, size, context) / 1e6 if roofline else None
    return {
        "batch_size": size,
        "step_ms": step_ms,
        "step_range_ms": [min(medians_ms), max(medians_ms)],
        "tokens_per_s": size / step_ms * 1e3,
        "roofline_step_ms": roofline_ms,
        "roofline_tokens_per_s": size / roofline_ms * 1e3 if roofline_ms else None,
    }


def _table(entry: Mapping[str, Any], report: Mapping[str, Any]) -> DataTable:
    has_roofline = report["roofline"] is not None
    columns = ["batch", "step, ms", "tokens/s", "gain to the next, % of linear"]
    columns += ["roofline step, ms", "roofline tokens/s", "of the roofline, %"] * has_roofline
    notes = [f"{knee_text(entry)} (gain below {report['share']:.0%} of linear)"]
    if has_roofline:
        notes.append(f"roofline: {knee_text(entry, 'roofline_knee')}")
    if entry["sizes_without_steps"]:
        sizes = ", ".join(map(str, entry["sizes_without_steps"]))
        notes.append(f"no step of {sizes} sequences was seen: the cache is too small")
    return DataTable(
        columns=columns,
        rows=[_line(point, has_roofline) for point in entry["points"]],
        title=f"Decode steps, {entry['context']} tokens of context a sequence",
        note="; ".join(notes),
    )


def _line(point: Mapping[str, Any], has_roofline: bool) -> list[str]:
    gain = point.get("knee_gain_share")
    cells = [
        str(point["batch_size"]),
        f"{point['step_ms']:.2f}",
        f"{point['tokens_per_s']:.1f}",
        "" if gain is None else f"{gain * 100:.0f}",
    ]
    if has_roofline:
        share = point["tokens_per_s"] / point["roofline_tokens_per_s"]
        cells += [f"{point['roofline_step_ms']:.2f}", f"{point['roofline_tokens_per_s']:.1f}"]
        cells.append(f"{share * 100:.0f}")
    return cells
