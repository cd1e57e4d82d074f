"""The sweep over a source that is a model, and its report."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.cost_model import CostModel
from tokentide.bench.commands import app
from tokentide.bench.decode_steps import PredictedSteps
from tokentide.bench.knee import KneePlan, knee_trials, run_knee
from tokentide.bench.knee_report import knee_report, tables_of
from tokentide.bench.knee_tool import knee_options, roofline_of
from tokentide.bench.roofline import profile_roofline
from tokentide.bench.rows import Rows
from tokentide.bench.serve import Progress
from tokentide.bench.serve_options import TargetFlags
from tokentide.bench.trials import TimeLimit

FACTS = {"command": "c", "machine": {"cores": 2}, "model": "m", "settings": {}}
PLAN = KneePlan(batch_sizes=(1, 4, 16), contexts=(10, 100), num_steps=4, repeat=2, seed=0)
LIMIT = TimeLimit(clock=lambda: 0.0, started_s=0.0)
# 16 tokens ride along free, every further one costs as much as reading the weights for it
COSTS = CostModel(base_ns=1e6, free_tokens=4, per_token_ns=5e5, per_context_ns=100)


async def measure(path: Path, source: PredictedSteps) -> Rows:
    rows = Rows.open(path / "rows.jsonl", {})
    await run_knee(PLAN, source, rows, LIMIT, Progress())
    return rows


async def test_every_point_is_measured_in_each_repeat_and_both_knees_are_found(
    tmp_path: Path,
) -> None:
    rows = await measure(tmp_path, PredictedSteps("m", COSTS))

    report = knee_report(
        FACTS, rows.all(), 0, share=0.5, roofline=CostModel(base_ns=1e6), roofline_source="s"
    )

    assert len(rows.all()) == len(knee_trials(PLAN)) == 12
    short, long = report["contexts"]
    assert (short["context"], long["context"]) == (10, 100)
    assert short["knee"] == long["knee"] == 4
    assert short["roofline_knee"] is None  # this roofline is a line
    assert short["points"][0]["tokens_per_s"] == pytest.approx(999.0, rel=1e-3)
    assert short["points"][2]["roofline_tokens_per_s"] == pytest.approx(16_000)


async def test_a_batch_that_never_ran_is_named_and_the_rest_stands(tmp_path: Path) -> None:
    rows = await measure(tmp_path, PredictedSteps("m", COSTS, num_blocks=40, block_size=10))

    report = knee_report(FACTS, rows.all(), 0, share=0.5, roofline=None, roofline_source="")

    json.dumps(report, allow_nan=False)
    table = tables_of(report)[1]  # 100 tokens are 10 blocks: four sequences fit
    assert [row[0] for row in table.rows] == ["1", "4"]
    assert "no step of 16 sequences was seen" in table.note
    assert "roofline" not in " ".join(table.columns)


def test_a_simulated_worker_has_its_profiles_roofline_not_this_machines() -> None:
    given = TargetFlags(worker_args="--simulate a100-40gb-opt-13b")
    options = knee_options(given, PLAN, profile="", simulate=False, vocabulary=100, share=0.5)

    known = roofline_of(options, [{"probe": {"read_bytes_per_s": 1.0}}])

    assert known is not None
    assert known.costs == profile_roofline("a100-40gb-opt-13b").costs


@pytest.mark.slow
def test_a_profile_is_simulated_without_a_stack(tmp_path: Path) -> None:
    where = ("--out", str(tmp_path), "--batch-sizes", "1,64,256", "--contexts", "32")
    simulated = ("--profile", "a100-40gb-opt-13b", "--simulate", "--json")

    result = CliRunner().invoke(app, ["knee", *simulated, *where])

    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["contexts"][0]["knee"] == 64
    assert report["roofline"]["ridge"] > 100
    page = (tmp_path / "knee.html").read_text()
    assert "<svg" in page
    assert "knee at 64" in page
    assert "simulated: a100-40gb-opt-13b" in page and "host cores" in page


@pytest.mark.parametrize(
    "flags", [("--simulate",), ("--share", "2"), ("--batch-sizes", "0"), ("--profile", "nobody")]
)
def test_flags_that_cannot_be_are_one_line(flags: tuple[str, ...], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["knee", "--out", str(tmp_path), *flags])

    assert result.exit_code == 2
    assert result.output.count("error:") == 1
