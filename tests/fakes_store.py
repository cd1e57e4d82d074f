"""Both stores behind one harness.

The model runs on a clock that the test moves, the real one on its server's.
"""

import itertools
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from store_model import StoreModel

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.redis_store import RedisStore
from scheduler_service.store.values import CommitRow, Fence, NewRequest, RunningRecord, Watch
from shared.types import FinishReason, TokenIds

CAPACITY = 100_000
READER = Watch(replica_id="replica-a", nonce="reader", grace_ms=30_000)


@dataclass
class ManualClock:
    now_ms: int = 1_700_000_000_000


class StoreHarness:
    """A store, and what a test may do to its surroundings."""

    def __init__(
        self,
        store: RequestStore,
        clock: ManualClock | None = None,
        server: redis.asyncio.Redis | None = None,
        prefix: str = "",
    ) -> None:
        self.store = store
        self.clock = clock
        self.server = server
        self.prefix = prefix

    async def now_ms(self) -> int:
        if self.clock is not None:
            return self.clock.now_ms
        assert self.server is not None
        seconds, micros = await self.server.time()
        return int(seconds * 1000 + micros // 1000)

    async def pass_time(self, ms: int) -> None:
        """Until so much has passed on the store's clock. The real one is asked again and again."""
        if self.clock is not None:
            self.clock.now_ms += ms
            return
        assert self.server is not None and ms <= 250, "the real clock does not jump"
        seconds, micros = await self.server.time()
        end_us = seconds * 1_000_000 + micros + ms * 1000
        for _ in range(100_000):
            seconds, micros = await self.server.time()
            if seconds * 1_000_000 + micros > end_us:
                return
        raise AssertionError("the store's clock stands still")

    async def time_to_live_s(self, name: str) -> int | None:
        """Of a key of the real store (-1: for ever, -2: no such key); None where there are none."""
        return None if self.server is None else await self.server.ttl(self.prefix + name)

    async def keys_for_ever(self) -> set[str]:
        """Names of the pool's keys without a time to live; empty for the model."""
        if self.server is None:
            return set()
        pattern = self.prefix + "*"
        keys = [key.decode() async for key in self.server.scan_iter(match=pattern, count=1000)]
        lives = [await self.server.ttl(key) for key in keys]
        return {k[len(self.prefix) :] for k, ttl in zip(keys, lives, strict=True) if ttl == -1}


OpenStore = Callable[..., AbstractAsyncContextManager[StoreHarness]]


@asynccontextmanager
async def open_model(seed: int = 0, **limits: int) -> AsyncIterator[StoreHarness]:
    clock, source = ManualClock(), random.Random(seed)
    model = StoreModel(
        now_ms=lambda: clock.now_ms,
        draw_nonce=lambda: source.getrandbits(64),
        limits=StoreLimits(**limits),
    )
    yield StoreHarness(model, clock=clock)


@asynccontextmanager
async def open_redis(url: str, seed: int = 0, **limits: int) -> AsyncIterator[StoreHarness]:
    """In a pool of its own."""
    pool, source = uuid.uuid4().hex, random.Random(seed)
    async with (
        redis.asyncio.Redis.from_url(url) as server,
        RedisStore.connect(
            url,
            pool=pool,
            draw_nonce=lambda: source.getrandbits(64),
            **limits,  # type: ignore[arg-type]
        ) as store,
    ):
        yield StoreHarness(store, server=server, prefix=f"tokentide:{{{pool}}}:")


def make_new_request(
    request_id: str = "r1",
    *,
    payload: bytes = b"payload",
    payload_hash: bytes | None = None,
    priority: int = 0,
    num_prompt_tokens: int = 10,
    max_tokens: int = 100,
    timeout_ms: int = 0,
    watch: Watch | None = None,
    tenant: str = "tenant",
    **fields: Any,
) -> NewRequest:
    return NewRequest(
        request_id=request_id,
        payload_hash=payload_hash or request_id.encode().ljust(32, b"\0"),
        payload=payload,
        priority=priority,
        tenant=tenant,
        num_prompt_tokens=num_prompt_tokens,
        max_tokens=max_tokens,
        timeout_ms=timeout_ms,
        watch=watch,
        **fields,
    )


def make_row(
    record: RunningRecord,
    index: int,
    token_ids: TokenIds,
    finish: FinishReason | None = None,
    **fields: int | str,
) -> CommitRow:
    return CommitRow(
        request_id=record.request_id,
        assignment=record.assignment,
        index=index,
        token_ids=token_ids,
        finish=finish,
        **fields,  # type: ignore[arg-type]
    )


async def attach(
    store: RequestStore,
    incarnation: str = "worker-1",
    epoch: int = 1,
    replica: str = "replica-a",
    capacity: int = CAPACITY,
) -> Fence:
    fence = Fence(incarnation, epoch)
    await store.attach_driver(fence, replica, capacity)
    return fence


async def submit_all(store: RequestStore, *request_ids: str, **fields: object) -> None:
    for request_id in request_ids:
        await store.submit(make_new_request(request_id, **fields))  # type: ignore[arg-type]


async def run_all(
    store: RequestStore, fence: Fence, *request_ids: str, **fields: object
) -> tuple[RunningRecord, ...]:
    """Submitted and claimed."""
    await submit_all(store, *request_ids, **fields)
    return (await store.claim(fence, request_ids)).claimed


async def status_of(store: RequestStore, request_id: str) -> str | None:
    (slice_,) = await store.read_logs([(request_id, 0)])
    return slice_.status if slice_ else None


async def next_of(bells: AsyncIterator[tuple[str, ...]], wanted: tuple[str, ...]) -> None:
    """Reads rings until `wanted` is among them."""
    for _ in range(100):
        if await anext(bells) == wanted:
            return
    raise AssertionError(f"{wanted} did not ring")


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in itertools.islice(itertools.count(), count)]


async def window_ids(store: RequestStore, fence: Fence) -> list[str]:
    return [entry.request_id for entry in (await store.poll(fence)).window.entries]
