"""`tokentide advise` on a running stack of simulated workers: fitted, searched, verified; recorded, replayed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_stack import running_stack
from typer.testing import CliRunner

from tokentide import cli
from tokentide.bench.commands import app as bench_app
from tokentide.local_stack import LocalStack, StackSpec
from worker_service.simulated.tokenizer_folder import write_tokenizer_folder

pytestmark = [pytest.mark.stack, pytest.mark.slow]

PROFILE = "l4-llama-3.1-8b"
LOAD = ("--concurrency", "4", "--num-requests", "12", "--output", "exponential:12:40")


@pytest.fixture(scope="module")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps") / "steps.jsonl"


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, step_file: Path
) -> Iterator[tuple[LocalStack, tuple[str, ...]]]:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer_folder(folder, 131072)
    spec = StackSpec(
        model_dir=folder,
        worker_args=("--simulate", PROFILE),
        scheduler_args=("--step-file", str(step_file)),
    )
    with running_stack(spec) as running:
        where = ("--endpoint", running.endpoints[0])
        yield running, (*where, "--operations", running.operations_endpoints[0])


def test_it_fits_searches_and_measures_the_best_two_and_the_current(stack, tmp_path: Path) -> None:
    running, where = stack
    operations = running.operations_endpoints[0]
    set_now = ["strategy", "set", "static", "--batch-size", "4", "--max-wait-ms", "300"]
    assert CliRunner().invoke(cli.app, [*set_now, "--endpoint", operations]).exit_code == 0
    arguments = [*where, *LOAD, "--out", str(tmp_path), "--fit-minutes", "0.1", "--verify"]
    asked = ("--itl-slo-ms", "200", "--vocabulary", "200", "--json")

    result = CliRunner().invoke(cli.app, ["advise", *arguments, *asked])

    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["profile"]["name"] == "fitted"
    assert report["current"]["settings"]["batch_size"] == 4
    assert report["recommendation"]["settings"]["name"] == "continuous"
    assert f"--endpoint {operations}" in report["recommendation"]["command"]
    assert [entry["num_repeats"] for entry in report["verified"]] == [1, 1, 1]
    for entry in report["verified"]:
        assert abs(entry["error"]["tokens_per_s"]) < 0.3, "a generous bound: the machine is shared"
    shown = CliRunner().invoke(cli.app, ["strategy", "show", "--endpoint", operations]).stdout
    assert "batch_size=4" in shown, "the pool is left as it was"


def test_what_a_scheduler_recorded_is_sent_again(stack, step_file: Path, tmp_path: Path) -> None:
    _, where = stack
    once, again = tmp_path / "once.json", tmp_path / "again.json"
    serve = ["serve", *where, "--warmup", "0", "--vocabulary", "200"]
    load = ("--concurrency", "2", "--num-requests", "3", "--output", "uniform:3-9")
    before = tmp_path / "before.jsonl"
    before.write_text(step_file.read_text() if step_file.exists() else "")
    assert CliRunner().invoke(bench_app, [*serve, *load, "--out-file", str(once)]).exit_code == 0
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(step_file.read_text()[len(before.read_text()) :])

    replay = [*serve, "--steps", str(recorded), "--out-file", str(again)]
    assert CliRunner().invoke(bench_app, replay).exit_code == 0

    (first,), (second,) = (json.loads(path.read_text())["runs"] for path in (once, again))
    assert second["case"] == "open loop"
    assert second["statuses"] == {"OK": 3}
    for name in ("num_generated_tokens", "num_prompt_tokens"):
        assert second["throughput"][name] == first["throughput"][name]
