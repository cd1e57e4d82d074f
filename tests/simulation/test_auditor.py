"""The auditor works: a fault planted in one function or one line of Lua is seen from the history."""

import pytest
from cluster import OpenStore
from lua_store import lua_stores
from plants import IN_LUA, IN_PYTHON, Plant
from schedules import History, judge
from test_poison import among_others
from test_simulation import run

from scheduler_service.store.embedded import EmbeddedStore

MAX_SEEDS = 200


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory):
    with EmbeddedStore.start(tmp_path_factory.mktemp("store")) as server:
        yield server.url


async def history_of(seed: int, plant: Plant, **given) -> list[str]:
    if plant.poisons:
        cluster, *_ = await among_others(seed, limit_s=60.0, **given)
        return cluster.auditor.violations
    history = History(seed, faults=plant.faults, **given)
    try:
        await history.run()
    except (TimeoutError, BaseExceptionGroup):
        return history.cluster.auditor.violations
    return judge(history)


async def whole_history_of(seed: int, open_store: OpenStore) -> History:
    history = History(seed, open_store=open_store)
    await history.run()
    return history


def assert_reported(plant: Plant, **given) -> None:
    for seed in range(plant.first_seed, plant.first_seed + MAX_SEEDS):
        if any(
            line.startswith(plant.reported_as) for line in run(history_of(seed, plant, **given))
        ):
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
