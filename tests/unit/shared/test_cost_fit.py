"""A fit finds the costs that made the samples, whatever disturbed some of them."""

import random

import pytest

from shared.cost_fit import FitReport, OnlineFit, fit, non_negative_least_squares
from shared.cost_model import CostModel, StepShape

TRUTH = CostModel(
    base_ns=8e6,
    free_tokens=64,
    per_token_ns=40_000,
    per_sequence_ns=20_000,
    per_sample_ns=5_000,
    per_context_ns=60,
    per_attended_ns=2,
)


def random_shape(rng: random.Random) -> StepShape:
    decodes = [(rng.randrange(8, 1500), 1, True) for _ in range(rng.randrange(0, 65))]
    chunks = [
        (rng.choice((0, 256, 512)), rng.randrange(2, 400), rng.random() < 0.5)
        for _ in range(rng.randrange(0, 4))
    ]
    return StepShape.of_chunks(decodes + chunks or [(9, 1, True)])


def make_samples(number: int, *, noise: float = 0.0, seed: int = 1) -> list[tuple[StepShape, int]]:
    rng = random.Random(seed)
    shapes = [random_shape(rng) for _ in range(number)]
    return [(s, round(TRUTH.predict_ns(s) * (1 + rng.uniform(-noise, noise)))) for s in shapes]


def test_clean_samples_give_the_costs_back():
    model, report = fit(make_samples(300))

    assert model.free_tokens == TRUTH.free_tokens
    for name, value in TRUTH.as_dict().items():
        assert getattr(model, name) == pytest.approx(value, rel=1e-2), name
    assert report.p95_error < 1e-4


def test_disturbed_steps_do_not_move_the_fit():
    samples = make_samples(300, noise=0.03)
    disturbed = [(s, 4 * ns if n % 12 == 0 else ns) for n, (s, ns) in enumerate(samples)]

    model, report = fit(disturbed)

    assert report.num_outliers >= 20
    assert FitReport.of(model, make_samples(200, seed=2)).p95_error < 0.05


def test_no_cost_is_negative_where_noise_would_like_it_so():
    model, _ = fit(make_samples(20, noise=0.3))

    assert min(model.as_dict().values()) >= 0


def test_one_kind_of_step_gives_a_model_of_it():
    shape = StepShape.of_chunks([(10, 1, True)])

    model, _ = fit([(shape, 5_000_000)] * 20)

    assert model.predict_ns(shape) == pytest.approx(5_000_000, rel=1e-3)


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="too few"):
        fit(make_samples(3))


def test_the_online_fit_finds_the_costs_too():
    online = OnlineFit()
    for shape, measured_ns in make_samples(640, noise=0.02):
        online.add(shape, measured_ns)

    assert online.model is not None
    assert FitReport.of(online.model, make_samples(200, seed=2)).p95_error < 0.06


def test_the_online_fit_has_no_model_before_it_knows_anything():
    online = OnlineFit()
    for shape, measured_ns in make_samples(3):
        online.add(shape, measured_ns)

    assert online.model is None


def test_the_online_fit_follows_a_machine_that_has_become_slower():
    online = OnlineFit(memory_steps=200)
    for shape, measured_ns in make_samples(320):
        online.add(shape, measured_ns)
    for shape, measured_ns in make_samples(1600, seed=3):
        online.add(shape, 2 * measured_ns)

    slower = [(shape, 2 * measured_ns) for shape, measured_ns in make_samples(100, seed=4)]
    assert FitReport.of(online.model, slower).median_error < 0.05


def test_least_squares_stay_at_zero_where_the_best_is_below():
    # A = identity, b = (3, -2)
    assert non_negative_least_squares([[1, 0], [0, 1]], [3, -2]) == pytest.approx([3, 0])
