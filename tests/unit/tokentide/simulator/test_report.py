"""The report of a simulation is that of `bench serve`, and its table can be drawn."""

import io
import json
from dataclasses import replace

from rich.console import Console
from simulated_loads import make_profile

from tokentide.bench.report import METHODS, SCHEMA
from tokentide.bench.serve import Progress
from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.summary import table_of
from tokentide.simulator.load import SimulatedSetup
from tokentide.simulator.report import SimulateOptions, run_simulate


class Watcher(Progress):
    def __init__(self) -> None:
        self.loads: list[tuple[str, int]] = []
        self.num_ended = 0

    def start(self, label, num_requests):
        self.loads.append((label, num_requests))

    def ended(self, observation):
        self.num_ended += 1


def make_options(**flags) -> SimulateOptions:
    return SimulateOptions(
        setup=SimulatedSetup.of_args(make_profile()),
        strategy_label="continuous",
        serve=serve_options(ServeFlags(vocabulary=1000, **flags)),
    )


async def test_the_report_has_every_case_and_what_made_it():
    watcher = Watcher()

    report = await run_simulate(make_options(concurrency="2,4", repeat=2), watcher)

    assert report["schema"] == SCHEMA
    assert report["methods"] == METHODS
    assert [(run["case"], run["repeat"]) for run in report["runs"]] == [
        ("2 at once", 0),
        ("4 at once", 0),
        ("2 at once", 1),
        ("4 at once", 1),
    ]
    assert watcher.loads == [("2 at once", 4), ("4 at once", 4)] * 2
    assert watcher.num_ended == 16
    assert report["stack"]["profile"]["costs"]["base_ns"] == 1e7
    json.dumps(report)
    table = table_of(report)
    Console(file=io.StringIO()).print(table)


async def test_a_simulation_is_called_so_and_shows_no_time_that_it_does_not_have():
    report = await run_simulate(make_options(concurrency="2"), Progress())

    console = Console(file=io.StringIO(), width=100)
    console.print(table_of(report))
    shown = console.file.getvalue()
    profile = make_profile().name
    assert f"simulated: {profile}" in shown and "cores" not in shown
    assert "planning" not in shown and "load average" not in shown
    assert report["simulated"] == profile
    assert report["runs"][0]["arrivals"] is None


async def test_an_open_loop_says_what_was_offered():
    report = await run_simulate(make_options(rate=5.0, num_requests=30), Progress())

    (run,) = report["runs"]
    assert run["arrivals"]["offered_requests_per_s"] > 0
    console = Console(file=io.StringIO(), width=100)
    console.print(table_of(report))
    assert "offered requests/s" in console.file.getvalue()


async def test_the_same_seed_gives_the_same_figures():
    flags = {"rate": 50.0, "num_requests": 20, "output": "exponential:20:60"}
    first = await run_simulate(make_options(**flags), Progress())
    second = await run_simulate(make_options(**flags), Progress())

    for run in (*first["runs"], *second["runs"]):
        del run["simulation"], run["load_average_before"]
    assert first["runs"] == second["runs"]


async def test_finished_runs_are_kept_as_they_come():
    kept: list[int] = []
    options = make_options(repeat=2)
    serve = replace(options.serve, keep=lambda report: kept.append(len(report["runs"])))

    await run_simulate(replace(options, serve=serve), Progress())

    assert kept == [1, 2]
