"""Step times from what is in a step."""

import pytest

from shared.cost_model import CostModel, StepShape


def make_shape(num_tokens: int = 1, **fields: int) -> StepShape:
    rest = {"num_sequences": 0, "num_samples": 0, "num_context_tokens": 0, "num_attended": 0}
    return StepShape(num_tokens=num_tokens, **{**rest, **fields})


def test_a_shape_counts_reads_once_a_chunk_and_pairs_once_a_token():
    shape = StepShape.of_chunks([(0, 3, False), (10, 1, True)])

    assert shape == StepShape(
        num_tokens=4, num_sequences=2, num_samples=1, num_context_tokens=14, num_attended=17
    )


def test_tokens_are_free_until_reading_the_weights_hides_them_no_more():
    model = CostModel(base_ns=100, free_tokens=8, per_token_ns=10)

    assert [model.predict_ns(make_shape(n)) for n in (1, 8, 9, 18)] == [100, 100, 110, 200]


@pytest.mark.parametrize(
    ("cost", "feature"),
    [
        ("per_sequence_ns", "num_sequences"),
        ("per_sample_ns", "num_samples"),
        ("per_context_ns", "num_context_tokens"),
        ("per_attended_ns", "num_attended"),
    ],
)
def test_every_cost_counts_its_own_feature(cost, feature):
    model = CostModel(base_ns=100, **{cost: 3})

    assert model.predict_ns(make_shape(1, **{feature: 7})) == 121


def test_a_step_without_tokens_takes_no_time():
    assert CostModel(base_ns=100).predict_ns(make_shape(0)) == 0


def test_a_model_survives_its_dictionary():
    model = CostModel(base_ns=1.5, free_tokens=2, per_token_ns=3, per_attended_ns=0.25)

    assert CostModel.from_dict(model.as_dict()) == model


@pytest.mark.parametrize(
    "values", [{}, {"base_ns": 1, "per_tokn_ns": 1}, {"base_ns": -1}, {"base_ns": "nan"}]
)
def test_what_is_no_model_is_refused(values):
    with pytest.raises(ValueError, match=r"base_ns|per_tokn_ns"):
        CostModel.from_dict(values)
