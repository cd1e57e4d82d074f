"""The table of a fit: every cost has a meaning, and times a unit in which they read well."""

from dataclasses import fields

import pytest

from shared.cost_model import CostModel
from shared.profiles import Overheads
from tokentide.commands.profile import MEANINGS, time_text


def test_every_cost_is_explained() -> None:
    assert {field.name for part in (CostModel, Overheads) for field in fields(part)} == set(
        MEANINGS
    )


@pytest.mark.parametrize(
    ("ns", "text"), [(63_043_615, "63.04 ms"), (1_500, "1.50 us"), (0.25, "0.25 ns")]
)
def test_a_time_is_told_in_its_own_unit(ns: float, text: str) -> None:
    assert time_text(ns) == text
