"""Finished rows survive a kill, and are never mixed with rows of other settings."""

from collections.abc import Callable
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


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: "",
        lambda line: line.replace('"x": 2', '"x": 3'),
        lambda line: line.replace('"row": {"model": "m", "x": 2}', '"row": {}'),
        lambda line: line.replace('"model": "m", ', ""),
        lambda line: line.replace('"key": "b"', '"key": ["b"]'),
        lambda line: "[1, 2]",
        lambda line: "\0" * 40,
        lambda line: "[" * 100_000,
        lambda line: "\ufffd",
    ],
)
@pytest.mark.parametrize("place", [2, 3], ids=["in the middle", "at the end"])
def test_a_row_that_is_not_what_was_written_is_measured_again(
    tmp_path: Path, damage: Callable[[str], str], place: int
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = Rows.open(path, {})
    for key, x in {2: (("a", 1), ("b", 2), ("c", 4)), 3: (("a", 1), ("c", 4), ("b", 2))}[place]:
        rows.add(key, {"model": "m", "x": x})
    lines = path.read_text().splitlines()
    lines[place] = damage(lines[place])
    path.write_text("".join(f"{line}\n" for line in lines))

    rows = Rows.open(path, {})

    assert "b" not in rows and rows["a"]["x"] == 1 and rows["c"]["x"] == 4
    rows.add("b", {"model": "m", "x": 5})
    assert Rows.open(path, {})["b"]["x"] == 5


def test_rows_without_a_checksum_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"settings": {}}\n{"key": "a", "row": {"x": 1}}\n')

    assert Rows.open(path, {})["a"] == {"x": 1}


def test_every_value_that_a_row_may_have_passes_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"b": 0.1, "a": [1e300, -0.0, 1 / 3], "\u00e9": None, "n": float("inf"), "d": {"2": (1,)}}
    Rows.open(path, {}).add("a", row)

    assert "a" in Rows.open(path, {})


def test_a_kill_in_the_first_line_leaves_a_file_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text in ("", '{"settings": {"se'):
        path.write_text(text)

        Rows.open(path, {"seed": 1}).add("a", {"x": 1})

        assert "a" in Rows.open(path, {"seed": 1})


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for text in ("hello\n", "hello\nworld\n", '{"a": 1}\n'):
        path.write_text(text)

        with pytest.raises(ValueError, match="--fresh"):
            Rows.open(path, {"seed": 1})

        assert path.read_text() == text
