"""The planner and the driver's view against a block-exact fake worker, under random load.

After each step: I6 (token budget, sequence cap, blocks: the worker never has to refuse), I8 (free +
held + cached = total); at the end I9 (each request reached one terminal state, once), all blocks
given back, and every output as if it had run alone.

No starvation: once a driver's window has shown it a request that its worker can run, the driver
claims at most k = `max_bypasses` requests of that request's own class that arrived later, or of a
less important class, before it claims that request. More important ones, and earlier ones of its
class, may always go first: that is what rank means. Plans in flight and preemptions add nothing:
only a claim passes anybody, and every claim behind a request that waits counts against it. Several
drivers have k each, and so has a new driver after a takeover: the count is the driver's own.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_simulation import LIMITS, Scenario, Simulation

from scheduler_service.planning.snapshot import Limits

SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 2**32),
    limits=LIMITS,
    num_blocks=st.integers(4, 40),
    num_plans_in_flight=st.integers(1, 3),
    arrivals_per_step=st.sampled_from([0.1, 0.4, 1.0]),
    cancels_per_step=st.sampled_from([0.0, 0.03, 0.2]),
    takeovers_per_step=st.sampled_from([0.0, 0.0, 0.05]),
    max_prompt=st.sampled_from([1, 8, 40]),
    max_output=st.sampled_from([1, 8, 40]),
    finds_prefixes=st.booleans(),
    max_uncommitted=st.integers(0, 6),
    window=st.sampled_from([8, 64]),
)


@pytest.mark.slow
@settings(  # the same examples each time: what they find is not for another commit to explain
    max_examples=200, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(scenario=SCENARIOS)
def test_any_load_under_any_limits_keeps_the_invariants_and_ends(scenario: Scenario) -> None:
    Simulation(scenario).run(num_steps=60)


@pytest.mark.slow
@pytest.mark.parametrize("num_plans_in_flight", [1, 2])
@pytest.mark.parametrize("num_blocks", [14, 24])
def test_a_thousand_steps_on_a_tiny_pool_preempt_bypass_and_end_all(
    num_plans_in_flight: int, num_blocks: int
) -> None:
    simulation = Simulation(
        Scenario(
            seed=num_blocks,
            limits=Limits(token_budget=32, max_sequences=8, max_bypasses=4, watermark=0.02),
            num_blocks=num_blocks,
            num_plans_in_flight=num_plans_in_flight,
            max_prompt=24,
            max_output=40,
        )
    )

    simulation.run(num_steps=1000)

    assert simulation.num_preemptions > 20
    assert simulation.num_bypasses > 20


@pytest.mark.slow
@pytest.mark.parametrize("finds_prefixes", [False, True])
def test_a_thousand_steps_with_driver_takeovers_lose_and_oversell_nothing(
    finds_prefixes: bool,
) -> None:
    simulation = Simulation(
        Scenario(
            seed=5,
            limits=Limits(token_budget=16, max_sequences=6, chunk_size=5, watermark=0.0),
            num_blocks=16,
            takeovers_per_step=0.1,
            finds_prefixes=finds_prefixes,
            max_prompt=12,
            max_output=40,
        )
    )

    simulation.run(num_steps=1000)

    assert simulation.epoch > 50
    assert simulation.num_preemptions > 20
