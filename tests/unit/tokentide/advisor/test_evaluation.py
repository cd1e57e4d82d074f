"""Settings to figures: simulated once, kept, refused where services refuse them, broken off in time."""

from pathlib import Path

import pytest
from simulated_loads import make_profile, make_work

from shared.strategy import StrategySettings
from tokentide.advisor.evaluation import OutOfTime, SimulatedEvaluator, bounds_for, too_long_text
from tokentide.advisor.figures import Slo
from tokentide.bench.rows import Rows
from tokentide.bench.trials import TimeLimit
from tokentide.simulator.load import SimulatedLoad, SimulatedSetup


def make_evaluator(tmp_path: Path, *, minutes: float | None = None, **load) -> SimulatedEvaluator:
    requests = load.pop("requests", [make_work(n) for n in range(6)])
    return SimulatedEvaluator(
        setup=SimulatedSetup.of_args(make_profile()),
        load=SimulatedLoad(requests=requests, **load),
        slo=Slo(),
        rows=Rows.open(tmp_path / "rows.jsonl", {}),
        limit=TimeLimit(clock=lambda: 0.0, started_s=0.0, minutes=minutes),
    )


def test_more_places_serve_a_load_of_equal_steps_sooner(tmp_path: Path) -> None:
    evaluate = make_evaluator(tmp_path, concurrency=6)

    few, many = (evaluate(StrategySettings(max_sequences=places)) for places in (2, 6))

    assert few is not None and many is not None
    assert many.tokens_per_s > 2 * few.tokens_per_s
    assert many.num_ok == 6


def test_a_setting_is_simulated_once_and_kept_on_the_disk(tmp_path: Path) -> None:
    evaluate = make_evaluator(tmp_path)

    first = evaluate(StrategySettings())
    assert evaluate(StrategySettings()) == first
    assert evaluate.num_simulated == 1

    assert make_evaluator(tmp_path)(StrategySettings()) == first


@pytest.mark.parametrize(
    "settings",
    [
        StrategySettings(name="static", batch_size=500),  # more than a driver sees
        StrategySettings(name="static", batch_size=4),  # never full: six requests
    ],
)
def test_what_cannot_serve_the_load_has_no_figures(tmp_path: Path, settings) -> None:
    evaluate = make_evaluator(tmp_path)

    assert evaluate(settings) is None
    assert evaluate.refusal


def test_without_time_nothing_is_simulated_and_nothing_kept(tmp_path: Path) -> None:
    evaluate = make_evaluator(tmp_path, minutes=0.0)

    with pytest.raises(OutOfTime):
        evaluate(StrategySettings())

    assert StrategySettings().as_json() not in evaluate.rows


def test_the_bounds_come_from_services_and_load(tmp_path: Path) -> None:
    evaluate = make_evaluator(tmp_path, requests=[make_work(n, prompt=1500) for n in range(9)])

    bounds = bounds_for(evaluate.setup, evaluate.load)

    assert (bounds.max_places, bounds.max_batch, bounds.max_budget) == (9, 9, 3000)


def test_a_request_that_no_setting_can_serve_is_said_with_what_a_worker_takes(
    tmp_path: Path,
) -> None:
    evaluator = make_evaluator(tmp_path)
    room = 3201  # its 200 blocks of 16, and the last token is never computed
    longest = make_work(0, prompt=room, tokens=3)

    assert too_long_text(evaluator.setup, evaluator.load) == ""
    assert too_long_text(evaluator.setup, SimulatedLoad(requests=[longest])) == (
        f"the longest has {room + 3} tokens, prompt and output, and a worker takes {room}"
    )
