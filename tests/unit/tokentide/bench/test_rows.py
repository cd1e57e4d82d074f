"""Finished rows survive a kill, and are never mixed with rows of other settings."""

from pathlib import Path

import pytest

from tokentide.bench.rows import Rows


def test_rows_are_there_again_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    Rows.open(path, {"seed": 1}).add("a", {"x": 1})

    rows = Rows.open(path, {"seed": 1})

    assert "a" in rows
    assert rows["a"] == {"x": 1}
    assert "b" not in rows


def test_a_line_that_a_kill_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    Rows.open(path, {}).add("a", {"x": 1})
    with path.open("a") as file:
        file.write('{"key": "b", "ro')

    Rows.open(path, {}).add("c", {"x": 3})

    assert [row["x"] for row in Rows.open(path, {}).all()] == [1, 3]


def test_rows_of_other_settings_are_refused_and_the_difference_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    Rows.open(path, {"seed": 1, "sizes": (1, 2)}).add("a", {"x": 1})

    assert "a" in Rows.open(path, {"seed": 1, "sizes": (1, 2)})
    with pytest.raises(ValueError, match=r"\(seed\).*--fresh"):
        Rows.open(path, {"seed": 2, "sizes": (1, 2)})
    assert "a" not in Rows.open(path, {"seed": 2, "sizes": (1, 2)}, fresh=True)


def test_a_file_that_is_something_else_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("hello\n")

    with pytest.raises(ValueError, match="no file of rows"):
        Rows.open(path, {})
