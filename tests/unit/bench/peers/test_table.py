"""The tables, and the section of the document that they replace."""

from pathlib import Path
from typing import Any

import pytest

from bench.peers.rows import Key, Row
from bench.peers.table import (
    BEGIN,
    END,
    agreement_grid,
    long_grid,
    main_grid,
    markdown,
    write_section,
)


def make_row(workload: str, system: str, step_tokens: int = 512, **figures: Any) -> Row:
    return Row(key=Key(workload, system, step_tokens, 0), cpu="", figures=figures)


def test_a_line_has_each_system_the_ratio_and_the_share_of_the_limit() -> None:
    rows = [make_row("32", "ours", tokens_per_s=150.0), make_row("32", "vllm", tokens_per_s=100.0)]

    grid = main_grid(rows, ["ours", "vllm", "llama"], {"32": 200.0})

    (line,) = grid.lines
    assert line[1:] == ("tokens/s", "150.0", "100.0", "–", "vllm", "1.50", "200", "75 %")


def test_a_quarter_of_a_workload_is_marked() -> None:
    rows = [make_row("32", "tf-static", tokens_per_s=5.0, is_quarter=True)]

    (line,) = main_grid(rows, ["tf-static"], {}).lines

    assert line[2] == "5.0 *"


def test_where_settings_differ_the_cell_names_its_own() -> None:
    rows = [
        make_row("32", "ours", 256, tokens_per_s=150.0),
        make_row("32", "vllm", 2048, tokens_per_s=100.0),
    ]

    (line,) = main_grid(rows, ["ours", "vllm"], {}).lines

    assert line[2:4] == ("150.0 @256", "100.0 @2048")


def test_a_workload_without_rows_has_no_line() -> None:
    assert main_grid([], ["ours"], {}).lines == []


def test_the_long_prompts_lines_say_who_is_on_the_front() -> None:
    rows = [
        make_row("long", "ours", 64, worst_gap_s=0.5, ttft_s=12.0),
        make_row("long", "vllm", 256, worst_gap_s=1.0, ttft_s=14.0),
        make_row("long", "vllm", 2048, worst_gap_s=9.0, ttft_s=10.0),
    ]

    lines = {(line[0], line[1]): line[4:] for line in long_grid(rows).lines}

    assert lines[("ours", "64")] == ("yes", "")
    assert lines[("vllm", "256")] == ("", "yes")
    assert lines[("vllm", "2048")] == ("yes", "yes")


def test_markdown_has_a_row_a_line_and_the_notes() -> None:
    grid = main_grid([make_row("one", "ours", tokens_per_s=20.0)], ["ours"], {})

    lines = markdown(grid).splitlines()

    assert lines[2].startswith("| workload | figure | ours |")
    assert lines[4].startswith("| one stream, 128 in, 128 out | tokens/s | 20.0 |")
    assert any(line.startswith("limit: by roofline") for line in lines)


def test_a_section_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nmore\n")

    write_section(path, "new")

    assert path.read_text() == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nmore\n"


def test_a_file_without_markers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text("# Title\n\ntext\n")

    with pytest.raises(ValueError, match="has no line"):
        write_section(path, "new")

    assert path.read_text() == "# Title\n\ntext\n"


def test_a_file_that_is_not_there_is_made_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "new.md"

    write_section(path, "old")
    write_section(path, "new")

    assert path.read_text() == f"# Benchmarks\n\n{BEGIN}\nnew\n{END}\n"


def test_agreement_says_in_how_many_runs_all_was_equal() -> None:
    rows = [
        make_row("one", "ours", first_tokens=[1, 2, 3, 4]),
        make_row("32", "ours", first_tokens=[1, 2, 3, 4]),
        make_row("one", "vllm", first_tokens=[1, 2, 3, 4]),
        make_row("32", "vllm", first_tokens=[1, 2, 9, 4]),
    ]

    grid = agreement_grid(rows, ["ours", "vllm", "llama"])

    assert grid.lines == [("vllm", "1 of 2", "2 of 4")]


def test_more_than_the_limit_is_explained_by_the_memorys_range() -> None:
    rows = [make_row("one", "ours", tokens_per_s=20.0)]

    assert any("43-72 GB/s" in note for note in main_grid(rows, ["ours"], {}, (43.2, 72.4)).notes)


def test_a_short_time_is_told_in_milliseconds() -> None:
    rows = [make_row("poisson", "ours", latency_s={"ttft": {"p50": 0.1837}})]

    (line,) = main_grid(rows, ["ours"], {}).lines

    assert line[1:3] == ("TTFT p50, ms", "184")


def test_a_beginning_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text(f"{BEGIN}\nold\n")

    with pytest.raises(ValueError, match="without"):
        write_section(path, "new")
