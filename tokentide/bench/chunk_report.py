"""What a chunk size costs those that decode, and what it costs the long prompt. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tokentide.bench.data_table import DataTable
from tokentide.bench.pareto import pareto_front
from tokentide.bench.rows import Row
from tokentide.bench.statistics import PERCENTILE_METHOD, median, ratio

SCHEMA = "tokentide.bench.chunk/2"
WITHIN = 3.0  # times the gap before, and times whole prefill's time to first token

METHODS = {
    "percentiles": PERCENTILE_METHOD,
    "gap": "time between two chunks of one decoding stream at the client, nothing spread",
    "before": "gaps that began after the last decode had its first token and ended before the long prompt left",
    "during": "gaps that overlap the time from the long prompt's departure to its first token",
    "ttft": "of the long prompt, at the client, with the decodes running",
    "prefill_loss": "1 - prompt tokens a second in the steps that computed the prompt (the decodes in them "
    "included), over the same of whole prefill",
    "prefill_own_s": "what the steps that computed the prompt took beyond as many pure decode steps",
    "pareto": "no other size has both a shorter TTFT and a shorter p99 gap",
    "choice": "of the sizes whose p99 gap and TTFT meet the SLO, the one with the shortest TTFT; with a "
    "TTFT SLO alone, the one with the shortest p99 gap",
    "over repeats": "medians of each trial's value",
    "gap before, to compare with": "median over all trials: before the prompt comes, no size matters",
}
PARTS = ("before", "during")
DURING = ("p50", "p99", "worst")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """None: nothing is asked."""

    itl_s: float | None = None  # p99 gap of those that decode
    ttft_s: float | None = None  # of the long prompt

    def is_met(self, entry: Mapping[str, Any]) -> bool:
        return (self.itl_s is None or entry["gap_during_s"]["p99"] <= self.itl_s) and (
            self.ttft_s is None or entry["ttft_s"] <= self.ttft_s
        )

    @property
    def is_asked(self) -> bool:
        return self.itl_s is not None or self.ttft_s is not None


def chunk_report(
    facts: Mapping[str, Any], rows: Sequence[Row], num_left: int, slo: Slo
) -> dict[str, Any]:
    sizes = [_over_repeats(size, rows) for size in _sizes(rows)]
    whole = next((entry for entry in sizes if entry["chunk_size"] is None), None)
    before = {
        name: median(run["gap_before_s"][key] for run in rows)
        for name, key in (("p50", "p50"), ("worst", "max"))
    }
    for entry in sizes:
        _judge(entry, before["worst"], whole)
        entry["meets_slo"] = slo.is_met(entry) if slo.is_asked else None
    front = pareto_front([(entry["ttft_s"], entry["gap_during_s"]["p99"]) for entry in sizes])
    for place, entry in enumerate(sizes):
        entry["is_on_front"] = place in front
    choice = _choice(sizes, slo)
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "num_runs_left": num_left,
        "within": WITHIN,
        "slo": {"itl_s": slo.itl_s, "ttft_s": slo.ttft_s},
        "gap_before_s": before,
        "methods": METHODS,
        "sizes": sizes,
        "good_sizes": [entry["chunk_size"] for entry in sizes if entry["is_good"]],
        "choice": choice,
        "runs": list(rows),
    }


def size_text(size: int | None) -> str:
    return str(size or "whole")


def tables_of(report: dict[str, Any]) -> list[DataTable]:
    settings, sizes = report["settings"], report["sizes"]
    gaps = DataTable(
        columns=["chunk", "before: p50", "worst", "during: p50", "p99", "worst", "worst / before"],
        rows=[_gap_line(entry) for entry in sizes],
        title=f"Gaps of the {settings['num_decodes']} that decode, ms",
    )
    heads = ["chunk", "TTFT, s", "/ whole", "tokens/s", "loss, %", "own cost, s"]
    prompt = DataTable(
        columns=[*heads, "good", "front", "SLO"],
        rows=[_prompt_line(entry) for entry in sizes],
        title=f"The {settings['num_prompt_tokens']}-token prompt",
        note=_note(report),
    )
    return [gaps, prompt]


def choice_text(report: Mapping[str, Any]) -> str:
    """Empty without an SLO."""
    slo, choice = report["slo"], report["choice"]
    asked = [
        f"{name} of {value * 1e3:.0f} ms"
        for name, value in (("p99 gap", slo["itl_s"]), ("TTFT", slo["ttft_s"]))
        if value is not None
    ]
    if not asked:
        return ""
    if choice is None:
        return f"No size meets the SLO ({', '.join(asked)})."
    return f"For a {' and a '.join(asked)}: chunk size {size_text(choice['chunk_size'])}."


def _note(report: Mapping[str, Any]) -> str:
    good = (
        f"good: worst gap within {report['within']:.0f}x of the worst before "
        f"({report['gap_before_s']['worst'] * 1e3:.0f} ms, median of all trials), and TTFT within "
        f"{report['within']:.0f}x of whole prefill's; front: no other size is better in TTFT and p99 gap"
    )
    costs = (
        "loss: of prompt tokens/s, in the steps that computed it, against whole prefill; own cost: what those "
        "steps took beyond as many steps of decodes alone"
    )
    return f"{good}; {costs}. {choice_text(report)}".rstrip()


def _gap_line(entry: Mapping[str, Any]) -> list[str]:
    keys = (("before", "p50"), ("before", "worst"), *(("during", k) for k in DURING))
    return [
        size_text(entry["chunk_size"]),
        *(f"{entry[f'gap_{part}_s'][key] * 1e3:.0f}" for part, key in keys),
        _number(entry["worst_gap_ratio"], 2),
    ]


def _prompt_line(entry: Mapping[str, Any]) -> list[str]:
    loss = entry["prefill_loss"]
    return [
        size_text(entry["chunk_size"]),
        f"{entry['ttft_s']:.2f}",
        _number(entry["ttft_ratio"], 2),
        _number(entry["prefill_tokens_per_s"], 0),
        _number(None if loss is None else loss * 100, 0),
        _number(entry["prefill_own_s"], 2),
        "yes" if entry["is_good"] else "",
        "yes" if entry["is_on_front"] else "",
        "yes" if entry["meets_slo"] else "",
    ]


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:.{decimals}f}"


def _sizes(rows: Sequence[Row]) -> list[int | None]:
    """Ascending, whole prefill last."""
    sizes = {row["chunk_size"] for row in rows}
    return [*sorted(size for size in sizes if size), *([None] if None in sizes else [])]


def _over_repeats(size: int | None, rows: Sequence[Row]) -> dict[str, Any]:
    mine = [row for row in rows if row["chunk_size"] == size]
    entry: dict[str, Any] = {"chunk_size": size}
    for part in PARTS:
        gaps = [row[f"gap_{part}_s"] for row in mine]
        named = {"p50": "p50", "p99": "p99", "worst": "max"}
        entry[f"gap_{part}_s"] = {
            name: median(gap[key] for gap in gaps) for name, key in named.items()
        }
    ttfts = [row["ttft_s"] for row in mine]
    entry["ttft_s"] = median(ttfts)
    entry["ttft_range_s"] = [min(ttfts), max(ttfts)]
    entry["worst_gap_range_s"] = [
        pick(row["gap_during_s"]["max"] for row in mine) for pick in (min, max)
    ]
    for name in ("prefill_tokens_per_s", "prefill_own_s"):
        known = [row[name] for row in mine if row[name] is not None]
        entry[name] = median(known) if known else None
    return entry


def _judge(entry: dict[str, Any], worst_before_s: float, whole: dict[str, Any] | None) -> None:
    gap_ratio = ratio(entry["gap_during_s"]["worst"], worst_before_s)
    ttft_ratio = ratio(entry["ttft_s"], whole["ttft_s"]) if whole else None
    entry["worst_gap_ratio"], entry["ttft_ratio"] = gap_ratio, ttft_ratio
    entry["is_good"] = bool(
        gap_ratio and ttft_ratio and gap_ratio <= WITHIN and ttft_ratio <= WITHIN
    )
    rates = [e["prefill_tokens_per_s"] for e in (entry, whole) if e is not None]
    is_known = len(rates) == 2 and None not in rates
    entry["prefill_loss"] = 1 - rates[0] / rates[1] if is_known else None


def _choice(sizes: Sequence[dict[str, Any]], slo: Slo) -> dict[str, Any] | None:
    meeting = [entry for entry in sizes if entry["meets_slo"]]
    if not meeting:
        return None
    if slo.itl_s is None:
        best = min(meeting, key=lambda entry: entry["gap_during_s"]["p99"])
    else:
        best = min(meeting, key=lambda entry: entry["ttft_s"])
    return {"chunk_size": best["chunk_size"]}
