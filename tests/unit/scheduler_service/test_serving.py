"""A replica that is cut off from the store refuses at once: its clients go where others have it."""

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_service.serving import Serving
from shared.errors import StoreUnavailable
from shared.strategy import StrategySettings
from shared.validation import RawRequest, RequestLimits


class SilentStore:
    """A call to it would wait for ever."""

    def on_connection_lost(self, tell: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


@pytest.fixture
def serving() -> Serving:
    store: Any = SilentStore()
    delivery: Any = SimpleNamespace()
    return Serving(
        store=store,
        delivery=delivery,
        replica_id="a",
        limits=RequestLimits(),
        capacities=lambda: [],
        strategy=StrategySettings,
        is_cut_off=lambda: True,
    )


async def test_a_replica_that_is_cut_off_asks_no_store(serving: Serving) -> None:
    with pytest.raises(StoreUnavailable, match="others do"):
        await serving.submit(RawRequest(request_id="r1"), b"hash", watch_nonce=None)
    with pytest.raises(StoreUnavailable, match="others do"):
        await serving.spec_of("r1")
    with pytest.raises(StoreUnavailable, match="others do"):
        await serving.cancel(["r1"])
