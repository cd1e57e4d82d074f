"""How a long benchmark runs: rows are kept, a rerun measures nothing twice, everything is written."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from tokentide.bench.data_table import DataTable
from tokentide.bench.html_page import Section
from tokentide.bench.outputs import RunFlags
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Progress
from tokentide.bench.tool import Facts, Report, Tool, run_tool
from tokentide.bench.trials import TimeLimit, Trial, run_trials
from tokentide.commands.interrupts import STOP_SIGNALS

STOPS = "the user stops here"


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def make_tool(measured: list[str], *keys: str, seed: int = 0) -> Tool:
    trials = [Trial(key=key, subject=key, expected_s=0.01) for key in keys]

    async def measure(key: str) -> Row:
        if key == STOPS:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        measured.append(key)
        return {"model": "m", "name": key}

    async def run(rows: Rows, limit: TimeLimit, progress: Progress) -> None:
        await run_trials(trials, rows, limit, measure, progress)

    def report(facts: Facts, rows: Sequence[Row], num_left: int) -> Report:
        return {**facts, "names": [row["name"] for row in rows], "num_runs_left": num_left}

    def tables(report: Report) -> list[DataTable]:
        return [DataTable(columns=("name",), rows=[(n,) for n in report["names"]], title="Names")]

    def draw(report: Report, folder: Path) -> list[Section]:
        return [Section(heading="A figure", svg='<svg id="x"></svg>')]

    return Tool(
        name="thing",
        title="A thing",
        settings={"seed": seed},
        trials=trials,
        run=run,
        report=report,
        tables=tables,
        draw=draw,
    )


def run(tool: Tool, out: Path, capsys: Any, **flags: Any) -> dict[str, Any]:
    run_tool(tool, RunFlags(out=out, as_json=True, **flags))
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_a_rerun_measures_only_what_is_new_and_reports_only_what_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    run(make_tool(measured, "a", "b"), tmp_path, capsys)
    report = run(make_tool(measured, "c", "b"), tmp_path, capsys)

    assert measured == ["a", "b", "c"]
    assert report["names"] == ["c", "b"]
    assert report["num_runs_left"] == 0


def test_json_and_page_are_written_with_command_machine_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(make_tool([], "a"), tmp_path, capsys)

    assert json.loads((tmp_path / "thing.json").read_text()) == report
    page = (tmp_path / "thing.html").read_text()
    for shown in ("A thing", "A figure", "<svg", "Names", "cores", "seed", "tokentide"):
        assert shown in page


def test_a_stopped_run_says_what_is_kept_and_goes_on_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    with pytest.raises(typer.Exit) as stopped:
        run(make_tool(measured, "a", "b", STOPS, "c"), tmp_path, capsys)

    assert stopped.value.exit_code == 130
    assert "stopped: 2 of 4 runs are kept; the same command goes on" in capsys.readouterr().err
    run(make_tool(measured, "a", "b", "c"), tmp_path, capsys)
    assert measured == ["a", "b", "c"]


def test_what_is_simulated_is_called_so_in_every_title(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = make_tool([], "a")

    run_tool(replace(tool, settings={"simulated": "l4"}), RunFlags(out=tmp_path))

    assert "m, simulated: l4" in capsys.readouterr().out
    page = (tmp_path / "thing.html").read_text()
    for title in ("A thing: m, simulated: l4", "Names, simulated: l4", "host cores"):
        assert title in page


def test_other_settings_need_fresh_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured: list[str] = []
    run(make_tool(measured, "a"), tmp_path, capsys)

    with pytest.raises(ValueError, match="--fresh"):
        run(make_tool(measured, "a", seed=1), tmp_path, capsys)
    run(make_tool(measured, "a", seed=1), tmp_path, capsys, fresh=True)

    assert measured == ["a", "a"]


def test_without_time_nothing_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        run(make_tool([], "a"), tmp_path, capsys, minutes=0.0)

    assert "1 of 1 runs left" in capsys.readouterr().err
