"""Whose the ticks are."""

from pathlib import Path

import pytest

from bench.peers.machine_load import Ticks, read_ticks


def write_process(proc: Path, pid: int, parent: int, ticks: int, name: str = "python") -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    user, system = ticks - 1, 1
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 0 0 0 0 0 0 0 0 0 {user} {system} 0")


def test_ours_is_the_process_and_all_under_it(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  50 0 10 30 10 0 0 0 0 0\n")
    write_process(tmp_path, 10, 1, 5)
    write_process(tmp_path, 11, 10, 7, name="a (strange) name")
    write_process(tmp_path, 12, 11, 9)
    write_process(tmp_path, 20, 1, 100)

    assert read_ticks(tmp_path, pid=10) == Ticks(passed=100, idle=40, ours=21)


def test_what_is_busy_and_not_ours_is_foreign() -> None:
    before, after = Ticks(passed=0, idle=0, ours=0), Ticks(passed=200, idle=60, ours=100)

    assert after.busy_share_since(before) == pytest.approx(0.7)
    assert after.foreign_share_since(before) == pytest.approx(0.2)
