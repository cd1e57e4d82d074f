"""The report for people: one sentence, a command line, tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokentide.advisor.judging import GOODPUT
from tokentide.bench.data_table import DataTable

MAX_FRONT = 16  # rows: more is not read
Entry = Mapping[str, Any]


def headline(report: Mapping[str, Any]) -> str:
    """What to do, whether it meets the SLO, what it gains."""
    best, current = report["recommendation"], report["current"]
    parts = []
    if not report["is_possible"]:
        parts.append(
            f"Nothing meets the SLO ({slo_text(report)}) on this load; the closest is "
            f"{best['label']}, {_over(best)}{_limits_text(report)}."
        )
        parts.append(_floor_text(report))
    elif best["settings"] == current["settings"]:
        parts.append(f"Keep {best['label']}: nothing found is better{_within(report)}.")
    else:
        parts.append(f"Best found: {best['label']}{_within(report)}.")
    if best["settings"] != current["settings"]:
        parts.append(_gain_text(report))
    parts.append(_failed_text(report))
    if not report["slo"]["is_asked"]:
        parts.append("No SLO was asked (--ttft-slo-ms, --itl-slo-ms): tokens/s decide.")
    if not report["is_complete"]:
        parts.append("The time was up before the search was through.")
    return " ".join(part for part in parts if part)


def slo_text(report: Mapping[str, Any]) -> str:
    slo = report["slo"]
    asked = [
        f"p{slo['percentile']:g} {name} {value * 1e3:g} ms"
        for name, value in (("TTFT", slo["ttft_s"]), ("ITL", slo["itl_s"]))
        if value is not None
    ]
    return ", ".join(asked) or "none asked"


def now_text(report: Mapping[str, Any]) -> str:
    """What the current setting is: in force, or only what a stack would begin with."""
    return "current" if report["is_current_asked"] else "default"


def tables_of(report: Mapping[str, Any]) -> list[DataTable]:
    tables = [_choice_table(report), _front_table(report)]
    return [*tables, _verified_table(report)] if report["verified"] else tables


def _within(report: Mapping[str, Any]) -> str:
    """Goodput may be best where the whole load does not meet the SLO."""
    best = report["recommendation"]
    if not report["slo"]["is_asked"]:
        return ""
    if best["meets_slo"]:
        return f", within the SLO ({slo_text(report)})"
    good = best["figures"]["goodput_per_s"]
    return f", with which {good:.2f} requests/s meet the SLO each ({slo_text(report)})"


def _over(best: Entry) -> str:
    excess = best["excess"]
    if excess is None:
        return "with which nobody was served"
    return f"{excess:.2f} times what is asked" if excess > 1 else "with which no request meets it"


def _failed_text(report: Mapping[str, Any]) -> str:
    figures = report["recommendation"]["figures"]
    num_failed = figures["num_failed"]
    if not num_failed:
        return ""
    return f"{num_failed} of {num_failed + figures['num_ok']} requests are refused or fail."


def _limits_text(report: Mapping[str, Any]) -> str:
    """Each time that is asked, missed or met."""
    slo, figures = report["slo"], report["recommendation"]["figures"]
    texts = []
    for name, key in (("TTFT", "ttft_s"), ("ITL", "itl_s")):
        limit_s, time_s = slo[key], figures[key]
        if limit_s is not None and time_s is not None:
            is_met = "within" if time_s <= limit_s else "over"
            texts.append(f"{name} {_ms(time_s)} ms {is_met} {limit_s * 1e3:g}")
    return f" ({', '.join(texts)})" if texts else ""


def _floor_text(report: Mapping[str, Any]) -> str:
    asked_s, floor_s = report["slo"]["itl_s"], report["floor"]["itl_s"]
    if asked_s is None or floor_s <= asked_s:
        return ""
    return (
        f"A step of one sequence alone takes {_ms(floor_s)} ms here: no setting can give an ITL of "
        f"{asked_s * 1e3:g} ms."
    )


def _gain_text(report: Mapping[str, Any]) -> str:
    current, gain = report["current"], report["gain"]
    whose = f"the {now_text(report)} setting"
    if current["figures"] is None:
        return f"{whose.capitalize()} ({current['label']}) cannot serve this load."
    percentile = f"p{report['slo']['percentile']:g}"
    most = ("good requests/s", "goodput_per_s") if report["objective"] == GOODPUT else None
    names = (
        *([most] if most else []),
        ("tokens/s", "tokens_per_s"),
        (f"{percentile} TTFT", "ttft_s"),
        (f"{percentile} ITL", "itl_s"),
        ("p50 end-to-end", "end_to_end_p50_s"),
    )
    gains = [f"{label} x{gain[name]:.2f}" for label, name in names if gain[name] is not None]
    return f"Against {whose} ({current['label']}): {', '.join(gains)}."


def _choice_table(report: Mapping[str, Any]) -> DataTable:
    current = report["current"]
    named = (
        [(f"{now_text(report)}: {current['label']}", current)]
        if current["figures"] is not None
        else []
    )
    named += [(f"best: {entry['label']}", entry) for entry in report["best_of_each"]]
    return DataTable(
        columns=["", *_heads(report)],
        rows=[[name, *_cells(entry, report)] for name, entry in named],
        title=f"Predicted, simulated: {report['settings']['profile']}",
        note=_choice_note(report),
    )


def _choice_note(report: Mapping[str, Any]) -> str:
    notes = ["batches stream their answers"]
    if report["slo"]["is_asked"]:
        at = f"p{report['slo']['percentile']:g}"
        notes.append(
            "good requests/s: those a second that meet the SLO each, by their own time to first token "
            f"and the {at} of their own gaps"
        )
    offered = report["recommendation"]["figures"]["offered_tokens_per_s"]
    if offered is not None:
        notes.append(
            f"rates: while requests arrive, the second half of it; offered {offered:.1f} tokens/s"
        )
    return "; ".join(notes)


def _front_table(report: Mapping[str, Any]) -> DataTable:
    entries = report["front"]
    shown = thinned(entries, MAX_FRONT)
    note = "* recommended" if report["is_possible"] else "* the closest"
    if len(shown) < len(entries):
        note += f"; {len(shown)} of {len(entries)} shown"
    return DataTable(
        columns=["settings", *_heads(report)],
        rows=[[_marked(e, report), *_cells(e, report)] for e in shown],
        title=f"The front: tokens/s against times ({report['num_candidates']} settings simulated)",
        note=note,
    )


def _marked(entry: Entry, report: Mapping[str, Any]) -> str:
    is_best = entry["settings"] == report["recommendation"]["settings"]
    is_now = entry["settings"] == report["current"]["settings"]
    now = f" ({now_text(report)})" if is_now else ""
    return f"{'* ' if is_best else ''}{entry['label']}{now}"


def thinned(entries: Sequence[Entry], most: int) -> list[Entry]:
    """Spread evenly over them, the first and the last among them."""
    if len(entries) <= most:
        return list(entries)
    places = {round(number * (len(entries) - 1) / (most - 1)) for number in range(most)}
    return [entries[place] for place in sorted(places)]


def _heads(report: Mapping[str, Any]) -> list[str]:
    at = f"p{report['slo']['percentile']:g}"
    slo = ["good requests/s", "SLO"] if report["slo"]["is_asked"] else []
    return ["tokens/s", f"TTFT {at}, ms", f"ITL {at}, ms", *slo]


def _cells(entry: Entry, report: Mapping[str, Any]) -> list[str]:
    figures = entry["figures"]
    return [
        f"{figures['tokens_per_s']:.1f}",
        _ms(figures["ttft_s"]),
        _ms(figures["itl_s"]),
        *_met(entry, report),
    ]


def _met(entry: Entry, report: Mapping[str, Any]) -> list[str]:
    """Requests a second that meet it each, and whether the whole load does."""
    if not report["slo"]["is_asked"]:
        return []
    return [f"{entry['figures']['goodput_per_s']:.2f}", "yes" if entry["meets_slo"] else "no"]


def _ms(value_s: float | None, decimals: int = 1) -> str:
    return "" if value_s is None else f"{value_s * 1e3:,.{decimals}f}"


def _verified_table(report: Mapping[str, Any]) -> DataTable:
    at = f"p{report['slo']['percentile']:g}"
    columns = ["measured / predicted", "tokens/s", f"TTFT {at}, ms", f"ITL {at}, ms", "SLO met"]
    return DataTable(
        columns=columns,
        rows=[_verified_cells(entry) for entry in report["verified"]],
        title="On the live stack",
        note="medians over the repeats; in brackets how far the prediction is off",
    )


def _verified_cells(entry: Entry) -> list[str]:
    cells = [entry["label"]]
    for name, factor in (("tokens_per_s", 1.0), ("ttft_s", 1e3), ("itl_s", 1e3)):
        measured, predicted, error = (
            entry["measured"][name],
            entry["figures"][name],
            entry["error"][name],
        )
        texts = ["-" if v is None else f"{v * factor:.1f}" for v in (measured, predicted)]
        cells.append(" / ".join(texts) + ("" if error is None else f" ({error:+.0%})"))
    return [*cells, f"{entry['num_repeats_that_meet_slo']} of {entry['num_repeats']}"]
