"""Trials run once each, within the time given, and go on where they were."""

import asyncio
from pathlib import Path

import pytest

from tokentide.bench.rows import Row, Rows
from tokentide.bench.trials import (
    TimeLimit,
    Trial,
    TrialProgress,
    expectation,
    expected_s,
    run_trials,
)

TRIALS = [Trial(key=name, subject=name, expected_s=10.0) for name in "abc"]


class Bench:
    """A clock that only measuring moves: each trial takes `takes_s`."""

    def __init__(self, path: Path, *, takes_s: float = 20.0, minutes: float | None = None) -> None:
        self.now_s = 0.0
        self.measured: list[str] = []
        self.rows = Rows.open(path / "rows.jsonl", {})
        self.limit = TimeLimit(clock=lambda: self.now_s, started_s=0.0, minutes=minutes)
        self._takes_s = takes_s

    async def measure(self, name: str) -> Row:
        self.now_s += self._takes_s
        self.measured.append(name)
        return {"name": name}

    async def run(self) -> int:
        return await run_trials(TRIALS, self.rows, self.limit, self.measure, TrialProgress())


async def test_every_trial_leaves_a_row_with_what_it_took(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    assert await bench.run() == 0

    assert bench.rows.all() == [{"name": name, "seconds": 20.0} for name in "abc"]


async def test_a_trial_that_would_not_end_in_time_is_not_begun(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minutes=0.75)

    assert await bench.run() == 1  # 5 s are left, and one takes 20

    assert bench.measured == ["a", "b"]
    again = Bench(tmp_path)
    assert await again.run() == 0
    assert again.measured == ["c"]


async def test_a_trial_that_the_limit_cuts_off_leaves_no_row(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def never_end(name: str) -> Row:
        return await asyncio.get_running_loop().create_future()

    limit = TimeLimit(clock=lambda: bench.now_s, started_s=0.0, minutes=1e-4)
    short = [Trial(key="a", subject="a", expected_s=0.0), *TRIALS[1:]]
    assert await run_trials(short, bench.rows, limit, never_end, TrialProgress()) == 3
    assert bench.rows.all() == []


async def test_a_timeout_of_the_measured_itself_is_an_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def time_out(name: str) -> Row:
        raise TimeoutError(name)

    with pytest.raises(TimeoutError):
        await run_trials(TRIALS, bench.rows, bench.limit, time_out, TrialProgress())


def test_what_finished_rows_took_corrects_the_guess_for_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minutes=5)

    assert expected_s(TRIALS, bench.rows) == pytest.approx(30.0)
    assert "a guess until the first" in expectation(TRIALS, bench.rows, bench.limit)
    bench.rows.add("a", {"seconds": 120.0})
    assert expected_s(TRIALS, bench.rows) == pytest.approx(240.0)
    assert expectation(TRIALS, bench.rows, bench.limit) == (
        "2 of 3 runs to measure, 1 kept from before: about 4 min; stops after 5 min"
    )
