"""Durability `failover`: what was promised is on a replica before the answer, or it was not promised."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from fakes_store import attach, make_new_request, make_row, status_of

from scheduler_service.store.embedded import EmbeddedStore
from scheduler_service.store.redis_store import RedisStore
from shared.errors import StoreRefused, StoreUnavailable

pytestmark = pytest.mark.slow


@asynccontextmanager
async def replicated(tmp_path: Path) -> AsyncIterator[tuple[EmbeddedStore, EmbeddedStore, Any]]:
    """A server, its replica, and a client of the replica."""
    with EmbeddedStore.start(tmp_path / "one") as one, EmbeddedStore.start(tmp_path / "two") as two:
        password, port = one.tcp_url.split(":")[2].split("@")[0], one.tcp_url.split(":")[-1]
        async with redis.asyncio.Redis.from_url(two.url) as replica:
            await replica.config_set("masterauth", password)
            await replica.execute_command("REPLICAOF", "127.0.0.1", port)
            async with asyncio.timeout(30):
                while (await replica.info("replication"))["master_link_status"] != "up":
                    await asyncio.sleep(0.05)
            yield one, two, replica


async def test_what_was_promised_survives_the_loss_of_the_server(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (one, two, replica):
        async with RedisStore.connect(one.url, durability="failover") as store:
            await store.submit(make_new_request("r1"))
            fence = await attach(store)
            (record,) = (await store.claim(fence, ["r1"])).claimed
            await store.commit(fence, [make_row(record, 0, (7, 8, 9))])
        one.stop(0)
        await replica.execute_command("REPLICAOF", "NO", "ONE")

        async with RedisStore.connect(two.url) as store:
            (log,) = await store.read_logs([("r1", 0)])
            assert log is not None and log.token_ids == (7, 8, 9)


async def test_without_an_acknowledgement_nothing_is_promised(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (one, _, replica):
        async with RedisStore.connect(one.url, durability="failover") as store:
            await replica.execute_command("REPLICAOF", "NO", "ONE")
            with pytest.raises(StoreUnavailable, match="acknowledged"):
                await store.submit(make_new_request("r1"))
            assert await status_of(store, "r1") == "waiting", "a repeated submit finds it"
            with pytest.raises(StoreUnavailable, match="acknowledged"):
                await store.beat("replica-a")
        with pytest.raises(StoreRefused, match="replica"):
            async with RedisStore.connect(one.url, durability="failover"):
                pass


async def test_what_another_replica_was_refused_is_not_promised_either(tmp_path: Path) -> None:
    """The repeated submit writes nothing, and what it finds is at no replica."""
    async with replicated(tmp_path) as (one, _, replica), stores_of(one, 2) as (store, other):
        await replica.execute_command("REPLICAOF", "NO", "ONE")
        with pytest.raises(StoreUnavailable, match="acknowledged"):
            await store.submit(make_new_request("r1"))
        with pytest.raises(StoreUnavailable, match="acknowledged"):
            await other.submit(make_new_request("r1"))


async def test_tokens_that_no_replica_has_are_not_read(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (one, _, replica), stores_of(one, 2) as (store, other):
        await store.submit(make_new_request("r1"))
        fence = await attach(store)
        (record,) = (await store.claim(fence, ["r1"])).claimed
        await store.commit(fence, [make_row(record, 0, (7,))])
        (log,) = await other.read_logs([("r1", 0)])
        assert log is not None and log.token_ids == (7,)

        await replica.execute_command("REPLICAOF", "NO", "ONE")
        with pytest.raises(StoreUnavailable, match="acknowledged"):
            await store.commit(fence, [make_row(record, 1, (8,))])
        with pytest.raises(StoreUnavailable, match="acknowledged"):
            await other.read_logs([("r1", 1)])


async def test_calls_that_come_together_are_acknowledged_together(tmp_path: Path) -> None:
    """Each WAIT blocks its connection for a second: one by one, others on it would starve."""
    async with replicated(tmp_path) as (one, _, replica), stores_of(one, 1) as (store,):
        await replica.execute_command("REPLICAOF", "NO", "ONE")
        submits = [store.submit(make_new_request(f"r{number}")) for number in range(50)]
        outcomes = await asyncio.gather(*submits, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}

        async with redis.asyncio.Redis.from_url(one.url) as server:
            stats = await server.info("commandstats")
        assert stats["cmdstat_wait"]["calls"] <= 3


@asynccontextmanager
async def stores_of(server: EmbeddedStore, num: int) -> AsyncIterator[list[RedisStore]]:
    """As so many schedulers have them."""
    async with AsyncExitStack() as stack:
        connecting = (RedisStore.connect(server.url, durability="failover") for _ in range(num))
        yield [await stack.enter_async_context(one) for one in connecting]
