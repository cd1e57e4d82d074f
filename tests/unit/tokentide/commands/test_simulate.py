"""From the flags of `tokentide simulate` to a setup, and its whole run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.errors import SettingError
from tokentide import cli
from tokentide.bench.serve_options import ServeFlags
from tokentide.commands.simulate import SimulateFlags, simulate_options

PROFILE = "l4-llama-3.1-8b"


def options_of(strategy: str = "continuous", **serve):
    return simulate_options(
        SimulateFlags(profile=PROFILE, strategy=strategy, serve=ServeFlags(**serve))
    )


def test_flags_of_services_and_strategy_reach_the_setup():
    options = options_of(
        "static:4", worker_args="--num-blocks 50", scheduler_args="--token-budget 99"
    )

    assert options.setup.engine().facts.num_blocks == 50
    assert options.setup.limits().token_budget == 99
    assert options.setup.strategy.batch_size == 4
    assert options.setup.profile.name == PROFILE


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"strategy": "random"}, "random"),
        ({"prompt": "long"}, "length distribution"),
        ({"worker_args": "--threads 2"}, "no effect"),
    ],
)
def test_what_cannot_be_is_refused(flags, words):
    with pytest.raises((ValueError, SettingError), match=words):
        options_of(**flags)


def test_the_command_prints_the_report_of_a_real_benchmark(tmp_path):
    out = tmp_path / "report.json"
    args = ["--profile", PROFILE, "--concurrency", "2,4", "--num-requests", "6", "--json"]

    result = CliRunner().invoke(cli.app, ["simulate", *args, "--out-file", str(out)])

    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert [case["case"] for case in report["summary"]] == ["2 at once", "4 at once"]
    assert [run["statuses"] for run in report["runs"]] == [{"OK": 6}, {"OK": 6}]


def test_a_recorded_workload_is_simulated_as_it_arrived(tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [{"arrival_s": 0.5 * n, "prompt_ids": [20 + n] * 9, "max_tokens": 3} for n in range(3)]
    trace.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    out = tmp_path / "report.json"
    args = ["--profile", PROFILE, "--workload", str(trace), "--out-file", str(out)]

    result = CliRunner().invoke(cli.app, ["simulate", *args])

    assert result.exit_code == 0, result.output
    (run,) = json.loads(out.read_text())["runs"]
    assert run["case"] == "open loop"
    assert run["duration_s"] > 1


def test_a_step_file_brings_its_own_requests():
    with pytest.raises(ValueError, match="its own arrivals"):
        simulate_options(
            SimulateFlags(profile=PROFILE, serve=ServeFlags(rate=1.0, steps=Path("x")))
        )
