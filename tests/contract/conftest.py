"""Both stores, for one suite."""

from collections.abc import AsyncIterator, Iterator

import pytest
from fakes_store import OpenStore, StoreHarness, open_model, open_redis

from scheduler_service.store.embedded import EmbeddedStore
from scheduler_service.store.interface import RequestStore


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedStore.start(tmp_path_factory.mktemp("store")) as server:
        yield server.url


@pytest.fixture(params=["model", "valkey"])
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    """Opens a store with the limits given."""
    if request.param == "model":
        return open_model
    url = request.getfixturevalue("valkey_url")
    return lambda **arguments: open_redis(url, **arguments)


@pytest.fixture
async def harness(open_store: OpenStore) -> AsyncIterator[StoreHarness]:
    async with open_store() as opened:
        yield opened


@pytest.fixture
def store(harness: StoreHarness) -> RequestStore:
    return harness.store
