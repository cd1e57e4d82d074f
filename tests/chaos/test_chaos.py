"""Six runs of `make chaos` on one stack of real processes."""

import pytest
from chaos_runs import run_chaos
from chaos_stack import chaos_stack

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = (
    "kill driver",
    "kill worker",
    "kill store",
    "commit/after/self",
    "result send/before/store",
    "kill everything",
)


async def test_streams_go_on_whatever_is_killed(tmp_path):
    async with chaos_stack(tmp_path) as stack:
        report = await run_chaos(stack, NAMES, seed=1, tokens=(40, 60), says=False)

    assert report.violations == []
    assert report.num_runs == len(NAMES)
    assert not report.not_reached
