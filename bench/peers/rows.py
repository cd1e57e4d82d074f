"""Finished measurements, one JSON object a line, so that a stopped bench goes on where it was.

A row counts only for the processor it was measured on. The last row of a key counts.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokentide.models import default_cache_dir

MAX_FOREIGN_SHARE = 0.05  # of all cores
MACHINE = "machine"  # the "system" of rows about the machine itself


@dataclass(frozen=True, slots=True)
class Key:
    workload: str
    system: str
    step_tokens: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    key: Key
    cpu: str
    at: str = ""  # when it ended, UTC
    figures: dict[str, Any] = field(default_factory=dict)
    error: str = ""  # why there are none
    code: str = ""  # checksum of our code, of a row of ours; empty: not known

    @property
    def is_good(self) -> bool:
        return not self.error

    @property
    def is_disturbed(self) -> bool:
        """Others computed beside it."""
        return float(self.figures.get("foreign_share", 0.0)) > MAX_FOREIGN_SHARE


def default_path() -> Path:
    return default_cache_dir() / "bench-peers" / "rows.jsonl"


def read_rows(path: Path, cpu: str) -> dict[Key, Row]:
    """A line that was cut short by a kill is skipped."""
    if not path.exists():
        return {}
    rows: dict[Key, Row] = {}
    for line in path.read_text().splitlines():
        row = _row(line)
        if row is not None and row.cpu == cpu:
            rows[row.key] = row
    return rows


def append_row(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":  # a kill cut the last line short
                file.write(b"\n")
        file.write(f"{json.dumps(asdict(row))}\n".encode())


def forget(path: Path, systems: Collection[str]) -> None:
    """Takes out all rows of these systems; `all` takes out every row, the rate of arrivals too.

    The file is replaced as a whole: a kill in between loses nothing."""
    if not systems or not path.exists():
        return
    kept = [line for line in path.read_text().splitlines() if not _is_of(line, systems)]
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text("".join(f"{line}\n" for line in kept))
    fresh.replace(path)


def of_workload(rows: Iterable[Row], workload: str) -> Sequence[Row]:
    return [row for row in rows if row.key.workload == workload]


def _is_of(line: str, systems: Collection[str]) -> bool:
    row = _row(line)
    return "all" in systems or row is None or row.key.system in systems


def _row(line: str) -> Row | None:
    try:
        fields = json.loads(line)
        return Row(**{**fields, "key": Key(**fields["key"])})
    except (ValueError, KeyError, TypeError):
        return None
