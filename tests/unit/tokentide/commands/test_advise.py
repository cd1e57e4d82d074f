"""`tokentide advise` whole, on a small simulated load: no stack."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tokentide import cli
from tokentide.advisor import evaluation

LOAD = ("--concurrency", "4", "--num-requests", "8", "--prompt", "fixed:24", "--output", "fixed:6")
PROFILE = ("--profile", "l4-llama-3.1-8b")


def advise(out: Path, *arguments: str, as_json: bool = True) -> Any:
    flags = [*PROFILE, *LOAD, "--out", str(out), *(["--json"] if as_json else [])]
    return CliRunner().invoke(cli.app, ["advise", *flags, *arguments])


@pytest.mark.slow
def test_it_prints_a_command_line_and_leaves_the_evidence(tmp_path: Path) -> None:
    result = advise(tmp_path, "--itl-slo-ms", "100", "--ttft-slo-ms", "2000")

    assert result.exit_code == 0, result.output
    assert "simulations, about" in result.stderr
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "advise.json").read_text())
    best = report["recommendation"]
    assert report["is_possible"] and best["meets_slo"] and best["figures"]["itl_s"] <= 0.1
    assert best["command"].startswith("tokentide strategy set ")
    assert {e["settings"]["name"] for e in report["candidates"]} == {
        "continuous",
        "static",
        "dynamic",
    }
    page = (tmp_path / "advise.html").read_text()
    assert "<svg" in page and best["command"] in page
    assert (tmp_path / "advise.png").stat().st_size > 0


@pytest.mark.slow
def test_what_is_kept_is_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advise(tmp_path)
    monkeypatch.setattr(evaluation, "LoadRun", None)

    again = advise(tmp_path, as_json=False)

    assert again.exit_code == 0, again.output
    assert "\ntokentide strategy set " in again.stdout
    other = advise(tmp_path, "--seed", "5")
    assert "--fresh" in other.stderr


@pytest.mark.slow
def test_nothing_meets_an_slo_that_no_device_can(tmp_path: Path) -> None:
    result = advise(tmp_path, "--itl-slo-ms", "0.001", as_json=False)

    assert result.exit_code == 0, result.output
    assert "Nothing meets the SLO" in result.stdout


def test_without_time_it_says_that_nothing_can_be_said(tmp_path: Path) -> None:
    result = advise(tmp_path, "--minutes", "0")

    assert result.exit_code == 2
    assert "not one simulation ended in time" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "luck"), "none of: throughput"),
        (("--itl-slo-ms", "0"), "above 0"),
        (("--percentile", "0"), "percentile"),
        (("--worker-args", "--threads 2"), "no effect"),
        (("--profile", "none"), "no profile file"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    tmp_path: Path, arguments: tuple[str, str], message: str
) -> None:
    result = advise(tmp_path, *arguments)

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_load_that_no_setting_serves_gets_no_recommendation(tmp_path: Path) -> None:
    result = advise(tmp_path, "--prompt", "fixed:200000", "--minutes", "1")

    assert result.exit_code == 2
    assert "no setting serves one request of this load: the longest has" in result.stderr
    assert "strategy set" not in result.stdout
