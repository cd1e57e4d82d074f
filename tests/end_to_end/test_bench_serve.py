"""`tokentide bench serve` as a user runs it, on a stack of its own and beside plain transformers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tokentide.bench.commands import app
from tokentide.bench.report import SCHEMA

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def bench(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["serve", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_load_on_a_local_stack_is_reported_beside_transformers(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "workload.jsonl"

    report = bench(
        *("--model", str(tiny_model_folder), "--kv-memory", "16MiB"),
        *("--worker-args", "--threads 1", "--compare-transformers"),
        *("--concurrency", "1,4", "--prompt", "uniform:8-24", "--output", "fixed:8"),
        *("--save-workload", str(saved)),
    )

    assert report["schema"] == SCHEMA
    assert len(saved.read_text().splitlines()) == 4
    for run in report["runs"]:
        assert run["statuses"] == {"OK": 4}
        assert run["throughput"]["num_generated_tokens"] == 4 * 8
        assert run["service"]["num_sampled_tokens"] == 4 * 8
        assert run["latency_s"]["queue_time"]["count"] == 4
        assert run["latency_s"]["itl"]["count"] <= 4 * 7
        assert run["transformers"]["num_equal_outputs"] == 4
        assert run["transformers"]["num_generated_tokens"] == 4 * 8
    assert [case["case"] for case in report["summary"]] == ["1 at once", "4 at once"]


def test_an_open_loop_runs_against_a_stack_that_is_there(tiny_stack) -> None:
    report = bench(
        *("--endpoint", ",".join(tiny_stack.endpoints)),
        *("--operations", ",".join(tiny_stack.operations_endpoints)),
        *("--rate", "50", "--num-requests", "10", "--vocabulary", "200"),
        *("--prompt", "fixed:8", "--output", "exponential:4:8", "--warmup", "0"),
    )

    (run,) = report["runs"]
    assert run["statuses"] == {"OK": 10}
    assert run["throughput"]["num_prompt_tokens"] == 80
    assert not report["stack"]["local"]


def test_an_endpoint_where_nobody_listens_is_one_line() -> None:
    result = CliRunner().invoke(
        app, ["serve", "--endpoint", "127.0.0.1:1", "--operations", "127.0.0.1:1"]
    )

    assert result.exit_code == 2
    assert result.output.count("error:") == 1
