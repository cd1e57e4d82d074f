"""The table grows with what is asked for, and holds what the whole would."""

import resource
from pathlib import Path

import torch
from tiny_models import tiny_model_dir
from torch import Tensor

from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig
from worker_service.engine.slim.rotary_table import FIRST_POSITIONS, RotaryTable

FREQUENCY_X = torch.tensor([1.0, 0.3, 0.01])


class CountedRotary:
    """Like `Rotary`; counts the positions computed."""

    def __init__(self) -> None:
        self.num_computed = 0

    def __call__(self, position_P: Tensor) -> tuple[Tensor, Tensor]:
        self.num_computed += len(position_P)
        angle_PX = position_P[:, None] * FREQUENCY_X
        return angle_PX.cos(), angle_PX.sin()


def make_table(rotary: CountedRotary, max_positions: int) -> RotaryTable:
    return RotaryTable(rotary, 2 * len(FREQUENCY_X), max_positions)  # type: ignore[arg-type]


def test_positions_are_computed_once_and_only_as_far_as_they_are_reached() -> None:
    rotary = CountedRotary()
    table = make_table(rotary, max_positions=10**9)

    assert rotary.num_computed == 0
    for num_positions in (1, 24, FIRST_POSITIONS, FIRST_POSITIONS + 1, 3 * FIRST_POSITIONS):
        cosine_PX, _ = table.up_to(num_positions)
        assert num_positions <= len(cosine_PX) <= num_positions + FIRST_POSITIONS
    assert rotary.num_computed == 4 * FIRST_POSITIONS


def test_what_grew_is_what_one_look_at_the_end_gives() -> None:
    grown = make_table(CountedRotary(), 5 * FIRST_POSITIONS)
    for num_positions in range(1, 5 * FIRST_POSITIONS, 700):
        grown.up_to(num_positions)
    whole = make_table(CountedRotary(), 5 * FIRST_POSITIONS)

    cosine_PX, sine_PX = grown.up_to(5 * FIRST_POSITIONS)

    assert len(cosine_PX) == 5 * FIRST_POSITIONS
    assert all(map(torch.equal, (cosine_PX, sine_PX), whole.up_to(5 * FIRST_POSITIONS)))
    expected_PX, _ = CountedRotary()(torch.arange(5 * FIRST_POSITIONS))
    torch.testing.assert_close(cosine_PX, expected_PX)


def test_it_ends_where_the_model_does() -> None:
    table = make_table(CountedRotary(), max_positions=100)

    assert len(table.up_to(1)[0]) == 100
    assert table.bytes_per_position == 2 * 3 * 4


def test_a_config_that_claims_a_billion_positions_costs_no_memory(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path, head_dim=128, max_position_embeddings=10**9)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    engine = Engine.load(EngineConfig(model_dir=folder, num_blocks=8))

    assert engine.facts.max_model_tokens == 10**9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 500_000
