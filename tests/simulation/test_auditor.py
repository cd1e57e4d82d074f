"""The auditor works: a fault planted in one function or one line of Lua is seen from the history."""

import pytest
from cluster import NOBODY_ANSWERED, OpenStore
from lua_store import lua_stores
from plants import IN_LUA, IN_PYTHON, Plant
from schedules import History, judge
from test_poison import among_others
from test_simulation import run

from scheduler_service.store.embedded import EmbeddedStore
from shared.types import FinishReason

MAX_SEEDS = 200


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory):
    with EmbeddedStore.start(tmp_path_factory.mktemp("store")) as server:
        yield server.url


async def history_of(seed: int, plant: Plant, **given) -> tuple[list[str], bool]:
    """What is reported of it, and whether all seems well without that: every client has its answer."""
    if plant.poisons:
        cluster, mates, _ = await among_others(seed, limit_s=60.0, **given)
        return cluster.auditor.violations, set(mates) == {FinishReason.LENGTH}
    history = History(seed, faults=plant.faults, **given)
    try:
        await history.run()
    except (TimeoutError, BaseExceptionGroup):
        return history.cluster.auditor.violations, False
    ends = set(history.ends.values())
    return judge(history), ends <= {FinishReason.LENGTH, NOBODY_ANSWERED}


async def whole_history_of(seed: int, open_store: OpenStore) -> History:
    history = History(seed, open_store=open_store)
    await history.run()
    return history


def assert_reported(plant: Plant, **given) -> None:
    """Of a history, too, in which nobody else would have noticed."""
    for seed in range(plant.first_seed, plant.first_seed + MAX_SEEDS):
        reported, seems_well = run(history_of(seed, plant, **given))
        if seems_well and any(line.startswith(plant.reported_as) for line in reported):
            return
    pytest.fail(f"not seen in {MAX_SEEDS} histories")


@pytest.mark.slow
@pytest.mark.parametrize("plant", IN_PYTHON, ids=lambda plant: plant.name)
def test_a_fault_in_our_python_is_reported(monkeypatch, plant):
    plant.patch(monkeypatch)

    assert_reported(plant)


@pytest.mark.slow
@pytest.mark.parametrize("plant", IN_LUA, ids=lambda plant: plant.name)
def test_a_fault_in_our_lua_is_reported(valkey_url, plant):
    with lua_stores(valkey_url, plant.lua) as open_store:
        assert_reported(plant, open_store=open_store)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_reported_of_our_lua_as_it_is(valkey_url, seed):
    """The same histories that run on the model elsewhere."""
    with lua_stores(valkey_url) as open_store:
        history = run(whole_history_of(seed, open_store))

    assert judge(history) == []
