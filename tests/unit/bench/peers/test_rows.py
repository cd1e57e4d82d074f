"""The file of finished measurements: what it keeps, what it skips, what it forgets."""

from pathlib import Path

import pytest

from bench.peers.rows import Key, Row, append_row, forget, read_rows

CPU = "a processor"


def make_row(system: str = "ours", repeat: int = 0, cpu: str = CPU, **fields: object) -> Row:
    return Row(key=Key("one", system, 512, repeat), cpu=cpu, **fields)  # type: ignore[arg-type]


def test_a_row_comes_back_as_it_was_written(tmp_path: Path) -> None:
    row = make_row(figures={"tokens_per_s": 12.5, "latency_s": {"ttft": {"p50": 0.1}}}, at="now")

    append_row(tmp_path / "new" / "rows.jsonl", row)

    assert read_rows(tmp_path / "new" / "rows.jsonl", CPU) == {row.key: row}


def test_without_a_file_nothing_is_finished(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "rows.jsonl", CPU) == {}


def test_the_last_row_of_a_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row(error="it fell over"))
    append_row(path, make_row(figures={"tokens_per_s": 1.0}))

    (row,) = read_rows(path, CPU).values()

    assert row.is_good


def test_a_line_cut_short_by_a_kill_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row())
    with path.open("a") as file:
        file.write('{"key": {"workload": "on')

    assert len(read_rows(path, CPU)) == 1


def test_a_row_after_a_cut_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": {"workload": "on')

    append_row(path, make_row())

    assert len(read_rows(path, CPU)) == 1


def test_rows_of_another_processor_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row(cpu="another"))

    assert read_rows(path, CPU) == {}


def test_forgetting_a_system_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row("ours"))
    append_row(path, make_row("llama"))

    forget(path, ["ours"])

    assert [key.system for key in read_rows(path, CPU)] == ["llama"]


def test_forgetting_all_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row("ours"))
    append_row(path, make_row("machine"))

    forget(path, ["all"])

    assert read_rows(path, CPU) == {}


def test_rows_of_a_time_before_code_was_noted_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row(code="abc"))
    path.write_text(path.read_text().replace(', "code": "abc"', ""))

    (row,) = read_rows(path, CPU).values()

    assert row.code == ""


def test_a_kill_while_rows_are_forgotten_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row("ours"))
    append_row(path, make_row("llama"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        forget(path, ["ours"])

    assert len(read_rows(path, CPU)) == 2


def test_forgetting_nobody_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, make_row())

    forget(path, [])

    assert len(read_rows(path, CPU)) == 1
