"""What a benchmark leaves in its folder: NAME.json, NAME.html, NAME*.png, NAME*.svg, NAME.jsonl (its rows)."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokentide.bench.html_page import Section, html_page
from tokentide.bench.running import write_report
from tokentide.bench.subject import machine_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """How a benchmark runs, beside what it measures."""

    out: Path
    minutes: float | None = None
    fresh: bool = False
    as_json: bool = False


def write_outputs(
    folder: Path,
    name: str,
    report: dict[str, Any],
    title: str,
    sections: Sequence[Section],
) -> None:
    """`report["machine"]` and `report["settings"]` become the page's facts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_report(folder / f"{name}.json", report)
    facts: Mapping[str, Any] = {**machine_of(report), **report["settings"]}
    page = html_page(title, sections, command=report["command"], facts=facts)
    (folder / f"{name}.html").write_text(page)


def command_line() -> str:
    """As it was typed, to stand in the report."""
    return shlex.join(["tokentide", *sys.argv[1:]])
