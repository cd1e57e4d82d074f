"""Which settings reach the services of a local stack."""

from pathlib import Path

import pytest

from tokentide.local_stack import STORE_VARIABLE, LocalStack, StackSpec

OURS = "redis://:secret@127.0.0.1:1"


def environment_of(*, inherits_settings: bool) -> dict[str, str]:
    spec = StackSpec(model_dir=Path("model"), inherits_settings=inherits_settings)
    return LocalStack(spec=spec, run_dir=Path("run"), redis_url=OURS).environment()


@pytest.fixture(autouse=True)
def production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "redis://production:6379")
    monkeypatch.setenv("TOKENTIDE_CONFIG", "production.toml")
    monkeypatch.setenv("tokentide_worker_device", "cuda")
    monkeypatch.setenv("TOKENTIDE_CACHE", "/cache")


def test_a_stack_of_its_own_never_joins_the_store_of_the_environment() -> None:
    for inherits_settings in (False, True):
        environment = environment_of(inherits_settings=inherits_settings)
        assert environment[STORE_VARIABLE] == OURS


def test_a_demo_is_what_it_is_whatever_the_environment_sets() -> None:
    found = environment_of(inherits_settings=False)
    assert {name for name in found if name.upper().startswith("TOKENTIDE")} == {
        STORE_VARIABLE,
        "TOKENTIDE_CACHE",
    }


def test_what_is_set_for_the_services_holds_in_a_stack_that_stays() -> None:
    found = environment_of(inherits_settings=True)
    assert found["tokentide_worker_device"] == "cuda"
    assert found["TOKENTIDE_CONFIG"] == "production.toml"
