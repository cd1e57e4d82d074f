"""A real server for the tests of what talks to it."""

from collections.abc import Iterator

import pytest

from scheduler_service.store.embedded import EmbeddedStore


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedStore.start(tmp_path_factory.mktemp("store")) as server:
        yield server.url
