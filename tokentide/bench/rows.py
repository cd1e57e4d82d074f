"""Finished rows of a long benchmark, one JSON object a line: a stopped one goes on where it was.

The first line holds the settings. Rows made with other settings are never mixed in. A row that is
not what was written, cut short by a kill or changed since, is left out: it is measured again.
"""

import json
import zlib
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
        first = f"{json.dumps(header)}\n"
        if fresh or not path.exists() or first.startswith(_text_of(path)):  # killed meanwhile
            path.write_text(first)
        kept, lines = _read(path)
        if kept != header:
            differing = _differences(kept, header)
            raise ValueError(
                f"{path} has rows of other settings ({differing}); --fresh throws them away, "
                "--out names another folder"
            )
        return cls(path, dict(row for line in lines if (row := _row_of(line))))

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def add(self, key: str, row: Row) -> None:
        assert key not in self._rows, f"row {key} was measured twice"
        with self._path.open("a") as file:
            line = {"key": key, "row": row, "crc32": _checksum(key, row)}
            file.write(f"{json.dumps(line)}\n")
        self._rows[key] = row

    def all(self) -> list[Row]:
        """In the order in which they were measured."""
        return list(self._rows.values())


def _read(path: Path) -> tuple[Any, list[str]]:
    """The settings, and the lines after them. Raises ValueError.

    A last line that was cut short by a kill is dropped, also from the file: rows follow it.
    """
    text = _text_of(path)
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    first, *lines = whole.split("\n")
    try:
        return json.loads(first), lines
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no file of rows: {error}; --fresh starts anew") from error


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _row_of(line: str) -> tuple[str, Row] | None:
    try:
        values = json.loads(line)
        key, row = values["key"], values["row"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if not isinstance(key, str) or not isinstance(row, dict) or not row:
        return None
    return (key, row) if values.get("crc32") in (None, _checksum(key, row)) else None


def _checksum(key: str, row: Row) -> int:
    return zlib.crc32(json.dumps([key, row]).encode())


def _differences(kept: Any, wanted: Mapping[str, Any]) -> str:
    kept_settings = kept.get("settings", {}) if isinstance(kept, dict) else {}
    wanted_settings = wanted["settings"]
    names: Sequence[str] = sorted(
        name
        for name in {*kept_settings, *wanted_settings}
        if kept_settings.get(name) != wanted_settings.get(name)
    )
    return ", ".join(names) or "no settings"
