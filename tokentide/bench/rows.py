"""Finished rows of a long benchmark, one JSON object a line: a stopped one goes on where it was.

The first line holds the settings. Rows made with other settings are never mixed in.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

Row = dict[str, Any]


class Rows:
    """`Rows.open(path, settings)`; each row has a key of its own, and is on the disk once added."""

    def __init__(self, path: Path, rows: Mapping[str, Row]) -> None:
        self._path = path
        self._rows = dict(rows)

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, Any], *, fresh: bool = False) -> Self:
        """Raises ValueError with one line if the file holds rows of other settings."""
        header = json.loads(json.dumps({"settings": settings}))  # as it reads back
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh or not path.exists():
            path.write_text(f"{json.dumps(header)}\n")
        lines = _whole_lines(path)
        if not lines or lines[0] != header:
            differing = _differences(lines[0] if lines else {}, header)
            raise ValueError(
                f"{path} has rows of other settings ({differing}); --fresh throws them away, "
                "--out names another folder"
            )
        return cls(path, {line["key"]: line["row"] for line in lines[1:]})

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def add(self, key: str, row: Row) -> None:
        assert key not in self._rows, f"row {key} was measured twice"
        with self._path.open("a") as file:
            file.write(f"{json.dumps({'key': key, 'row': row})}\n")
        self._rows[key] = row

    def all(self) -> list[Row]:
        """In the order in which they were measured."""
        return list(self._rows.values())


def _whole_lines(path: Path) -> list[Any]:
    """A last line that was cut short by a kill is dropped, also from the file: rows follow it."""
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise ValueError(f"{path} is no file of rows: {error}; --fresh starts anew") from error


def _differences(kept: Any, wanted: Mapping[str, Any]) -> str:
    kept_settings = kept.get("settings", {}) if isinstance(kept, dict) else {}
    wanted_settings = wanted["settings"]
    names: Sequence[str] = sorted(
        name
        for name in {*kept_settings, *wanted_settings}
        if kept_settings.get(name) != wanted_settings.get(name)
    )
    return ", ".join(names) or "no settings"
