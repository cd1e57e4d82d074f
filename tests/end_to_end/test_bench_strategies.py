"""`bench compare|knee|timeline|chunk` as a user runs them, each reduced, on one running stack."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_stack import running_stack
from typer.testing import CliRunner

from tokentide.bench.commands import app
from tokentide.local_stack import StackSpec

pytestmark = [pytest.mark.stack, pytest.mark.slow]

Bench = Callable[..., dict[str, Any]]
LOAD = ("--prompt", "uniform:8-24", "--output", "exponential:6:16")


@pytest.fixture(scope="module")
def where(tiny_model_folder: Path) -> Iterator[tuple[str, ...]]:
    """One worker: a batch is a worker's."""
    spec = StackSpec(
        model_dir=tiny_model_folder,
        worker_args=("--num-blocks", "256", "--threads", "1", "--model-name", "tiny"),
    )
    with running_stack(spec) as stack:
        endpoints, operations = stack.endpoints[0], stack.operations_endpoints[0]
        yield ("--endpoint", endpoints, "--operations", operations)


@pytest.fixture
def bench(where: tuple[str, ...], tmp_path: Path) -> Bench:
    """Runs a tool and gives its report; its files are in tmp_path."""

    def run(name: str, *arguments: str) -> dict[str, Any]:
        out = ("--out", str(tmp_path), "--json", "--vocabulary", "200")
        result = CliRunner().invoke(app, [name, *where, *out, *arguments])
        assert result.exit_code == 0, result.output
        report: dict[str, Any] = json.loads(result.stdout)
        assert json.loads((tmp_path / f"{name}.json").read_text()) == report
        page = (tmp_path / f"{name}.html").read_text()
        assert "<svg" in page
        assert (tmp_path / f"{name}.png").stat().st_size > 0
        return report

    return run


def test_compare_runs_the_same_requests_through_each_and_goes_on_where_it_was(
    bench: Bench,
) -> None:
    load = ("--concurrency", "8", "--strategies", "static:4,dynamic:4,continuous", *LOAD)

    once = bench("compare", *load, "--repeat", "1")
    twice = bench("compare", *load, "--repeat", "2")

    assert len(once["runs"]) == 3
    assert len(twice["runs"]) == 6
    assert twice["num_runs_left"] == 0
    assert all(run in twice["runs"] for run in once["runs"]), "kept, not measured again"
    for run in twice["runs"]:
        assert run["statuses"] == {"OK": 8}
    (num_tokens,) = {run["throughput"]["num_generated_tokens"] for run in twice["runs"]}
    assert num_tokens > 0
    (num_prompt_tokens,) = {run["throughput"]["num_prompt_tokens"] for run in twice["runs"]}
    assert num_prompt_tokens > 0, "nothing came from the prefix cache"
    held = {
        e["case"]: e["figures"]["service.wasted.num_held_sequence_steps"]
        for e in twice["strategies"]
    }
    assert held["static:4"]["median"] > 0
    assert held["continuous"]["median"] == 0


def test_knee_measures_pure_decode_steps_of_each_batch_size(bench: Bench) -> None:
    report = bench(
        *("knee", "--batch-sizes", "1,4", "--contexts", "16,64", "--steps", "6"),
        *("--profile", "a100-40gb-opt-13b"),
    )

    assert [entry["context"] for entry in report["contexts"]] == [16, 64]
    for entry in report["contexts"]:
        assert [point["batch_size"] for point in entry["points"]] == [1, 4]
    assert all(run["step_ms"]["count"] == 6 for run in report["runs"])


def test_timeline_shows_where_each_request_was(bench: Bench) -> None:
    strategies = ("--strategies", "static:2,continuous:max_sequences=2")

    report = bench("timeline", "--num-requests", "4", "--warmup", "2", *strategies, *LOAD)

    for entry in report["strategies"]:
        assert len(entry["requests"]) == 4
        for request in entry["requests"]:
            kinds = [segment["kind"] for segment in request["segments"]]
            assert kinds[:2] == ["waiting", "prefill"]
            assert request["status"] == "OK"
            assert request["ended_s"] >= request["first_chunk_s"]
    static, continuous = report["strategies"]
    assert static["seconds_in"]["held"] > 0
    assert continuous["seconds_in"]["held"] == 0


def test_chunk_switches_sizes_live_and_names_the_one_for_an_slo(bench: Bench) -> None:
    report = bench(
        *("chunk", "--sizes", "16", "--long-prompt", "256", "--num-decodes", "2"),
        *("--itl-slo-ms", "60000"),
    )

    small, whole = report["sizes"]
    assert (small["chunk_size"], whole["chunk_size"]) == (16, None)
    steps = {run["chunk_size"]: run["num_prompt_steps"] for run in report["runs"]}
    assert steps == {16: 16, None: 1}
    assert report["choice"] is not None


def test_out_of_time_is_said_and_what_is_done_is_reported(bench: Bench, tmp_path: Path) -> None:
    load = ("--concurrency", "4", "--strategies", "continuous", *LOAD)
    bench("compare", *load, "--repeat", "1")

    report = bench("compare", *load, "--repeat", "9", "--minutes", "0")

    assert report["num_runs_left"] == 8
    assert len(report["runs"]) == 1
