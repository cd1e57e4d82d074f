"""Histories with several faults of any kind. Thousands of them: `make simulate SEEDS=10000`."""

import pytest
from schedules import History, judge
from test_simulation import run


async def history_of(seed: int) -> History:
    history = History(seed)
    await history.run()
    return history


@pytest.mark.parametrize("seed", [*range(60), 193, 442, 589, 1594, 2015])
def test_streams_go_on_whatever_goes_wrong(seed: int) -> None:
    history = run(history_of(seed))

    assert judge(history) == [], history.faults
