"""From flags to what is to be done: which stack, which load, which services are simulated."""

from pathlib import Path
from typing import Any

import pytest

from shared.errors import SettingError
from shared.profiles import load_profile
from tokentide.advisor.figures import Slo
from tokentide.advisor.judging import Judge
from tokentide.advisor.options import AdviseFlags, AdviseOptions, advise_options
from tokentide.bench.serve_options import ServeFlags

PROFILE = "l4-llama-3.1-8b"


def options_of(profile: str = PROFILE, *, verify: bool = False, **serve: Any) -> AdviseOptions:
    judge = Judge(slo=Slo())
    flags = AdviseFlags(
        judge=judge, profile=profile, verify=verify, serve=ServeFlags(vocabulary=100, **serve)
    )
    return advise_options(flags)


def test_a_profile_alone_needs_no_stack() -> None:
    assert not options_of().needs_stack
    assert options_of(profile="").needs_stack
    assert options_of(verify=True).needs_stack
    assert options_of(endpoint="h:51").needs_stack


def test_the_operators_port_is_where_the_launcher_puts_it_unless_said() -> None:
    assert options_of(endpoint="h:51,g:52").serve.target.operations == ("h:151", "g:152")
    assert options_of(endpoint="h:51", operations="h:9").serve.target.operations == ("h:9",)


def test_a_load_has_several_requests_for_each_place() -> None:
    assert len(options_of(concurrency="8").load().requests) == 32
    assert options_of(concurrency="8").load().concurrency == 8
    assert options_of(rate=4.0).load().concurrency is None
    assert len(options_of(rate=4.0, num_requests=5).load().requests) == 5


def test_flags_of_services_reach_the_simulated_ones_of_a_running_stack_too() -> None:
    options = options_of(
        endpoint="h:51", worker_args="--max-sequences 9", scheduler_args="--token-budget 77"
    )

    setup = options.setup(load_profile(PROFILE))

    assert setup.limits().token_budget == 77
    assert setup.limits().max_sequences == 9
    assert options.serve.target.worker_args == ()


def test_a_simulated_worker_has_its_profiles_memory_unless_another_is_asked() -> None:
    profile = load_profile(PROFILE)

    assert options_of().setup(profile).engine().facts.num_blocks == profile.num_blocks
    asked = options_of(kv_memory="1GiB").setup(profile).engine()
    assert asked.facts.num_blocks == 2**30 // (profile.kv_bytes_per_token * profile.block_size)


def test_flags_that_say_how_to_compute_have_a_meaning_only_for_real_workers() -> None:
    profile = load_profile(PROFILE)

    options_of(verify=True, worker_args="--threads 2").setup(profile)
    with pytest.raises(SettingError, match="no effect"):
        options_of(worker_args="--threads 2").setup(profile)


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ({"concurrency": "4,8"}, "one load at a time"),
        ({"endpoint": "nonsense"}, "no HOST:PORT"),
        ({"steps": Path("/nowhere")}, "No such file"),
    ],
)
def test_what_cannot_be_is_refused(serve: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options_of(**serve)
