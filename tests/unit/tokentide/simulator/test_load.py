"""What a simulated setup takes from the flags of services, and refuses."""

import pytest
from simulated_loads import make_profile

from shared.errors import SettingError
from shared.strategy import StrategySettings
from tokentide.simulator.load import SimulatedSetup


def test_flags_of_services_mean_the_same_as_for_real_ones():
    setup = SimulatedSetup.of_args(
        make_profile(),
        worker_args=["--num-blocks", "77", "--max-step-tokens", "128"],
        scheduler_args=["--token-budget", "256", "--max-sequences", "3", "--watermark", "0.1"],
    )

    limits = setup.limits()
    assert setup.engine().facts.num_blocks == 77
    assert (limits.token_budget, limits.max_sequences, limits.watermark) == (128, 3, 0.1)


@pytest.mark.parametrize(
    "flags",
    [
        {"worker_args": ["--dtype", "float32"]},
        {"scheduler_args": ["--no-such-flag", "1"]},
        {"strategy": StrategySettings(name="static", batch_size=65)},
        {
            "strategy": StrategySettings(name="static", batch_size=9),
            "scheduler_args": ["--max-sequences", "8"],
        },
        {"strategy": StrategySettings(), "scheduler_args": ["--strategy", "static"]},
        {
            "strategy": StrategySettings(name="dynamic", preserve_ordering=True),
            "num_workers": 2,
        },
    ],
)
def test_what_services_refuse_is_refused(flags):
    with pytest.raises(SettingError):
        SimulatedSetup.of_args(make_profile(), **flags)


def test_without_a_strategy_the_schedulers_own_holds():
    setup = SimulatedSetup.of_args(make_profile(), scheduler_args=["--strategy", "static"])

    assert setup.strategy.name == "static"
