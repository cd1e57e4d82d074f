"""A server that cannot keep the promise is refused with one line."""

from pathlib import Path

import pytest

from scheduler_service.store.embedded import EmbeddedStore
from scheduler_service.store.redis_store import RedisStore
from scheduler_service.store.startup import check_server, find_broken_promise, server_version
from shared.errors import StoreRefused, StoreUnavailable

SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}


class FakeLane:
    """Answers INFO and CONFIG GET."""

    def __init__(self, version: str, settings: dict[str, str], num_replicas: int = 0) -> None:
        self.num_replicas = num_replicas
        self.version = version
        self.settings = settings

    async def call(self, *command: str) -> object:
        if command == ("INFO", "replication"):
            return f"# Replication\r\nconnected_slaves:{self.num_replicas}\r\n".encode()
        if command[0] == "INFO":
            return f"# Server\r\nredis_version:{self.version}\r\n".encode()
        return [command[2].encode(), self.settings[command[2]].encode()]


def test_the_version_is_read_from_info() -> None:
    assert server_version("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2") == (7, 2)
    with pytest.raises(StoreRefused):
        server_version("")


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_safe_server_keeps_its_promise(durability: str) -> None:
    assert find_broken_promise(SAFE, durability) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("durability", "name", "value"),
    [
        ("power", "appendfsync", "everysec"),
        ("power", "no-appendfsync-on-rewrite", "yes"),
        ("power", "appendonly", "no"),
        ("process", "appendonly", "no"),
        ("process", "appendfsync", "no"),
        ("process", "maxmemory-policy", "allkeys-lru"),
    ],
)
async def test_a_broken_promise_is_refused_by_name(durability: str, name: str, value: str) -> None:
    lane = FakeLane("7.0.15", {**SAFE, name: value})

    with pytest.raises(StoreRefused, match=name) as refused:
        await check_server(lane, durability)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


async def test_everysec_is_enough_for_process(caplog: pytest.LogCaptureFixture) -> None:
    await check_server(FakeLane("7.0.0", {**SAFE, "appendfsync": "everysec"}), "process")  # type: ignore[arg-type]


async def test_an_old_server_is_refused() -> None:
    with pytest.raises(StoreRefused, match="too old"):
        await check_server(FakeLane("6.2.14", SAFE), "power")  # type: ignore[arg-type]


async def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(StoreRefused, match="never"):
        await check_server(FakeLane("7.2.0", SAFE), "never")  # type: ignore[arg-type]


async def test_failover_needs_a_replica() -> None:
    await check_server(FakeLane("7.2.0", SAFE, num_replicas=1), "failover")  # type: ignore[arg-type]
    with pytest.raises(StoreRefused, match="replica"):
        await check_server(FakeLane("7.2.0", SAFE), "failover")  # type: ignore[arg-type]
    everysec = {**SAFE, "appendfsync": "everysec"}
    with pytest.raises(StoreRefused, match="appendfsync"):
        await check_server(FakeLane("7.2.0", everysec, num_replicas=1), "failover")  # type: ignore[arg-type]


async def test_a_real_server_with_everysec_is_refused_for_power(tmp_path: Path) -> None:
    with EmbeddedStore.start(tmp_path, appendfsync="everysec") as server:
        with pytest.raises(StoreRefused, match="appendfsync") as refused:
            async with RedisStore.connect(server.url, durability="power"):
                pass
        async with RedisStore.connect(server.tcp_url, durability="process") as store:
            assert (await store.beat("a")).num_waiting == 0

    password = server.url.split(":")[2].split("@")[0]
    assert password not in str(refused.value)


async def test_no_server_is_unavailable_and_a_wrong_password_is_refused(valkey_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        async with RedisStore.connect("unix:///nowhere.sock"):
            pass
    path = valkey_url.rpartition("@")[2]
    with pytest.raises(StoreRefused):
        async with RedisStore.connect(f"unix://:wrong@{path}"):
            pass
    for pool, url in (("{x}", valkey_url), ("p", "http://nowhere")):
        with pytest.raises(StoreRefused):
            async with RedisStore.connect(url, pool=pool):
                pass
