"""How long a commit of 32 rows takes, against one bare SET of the same bytes on the same server.

`python -m bench.store`; `measure()` gives the row. Every write is on disk before it is answered.
"""

import argparse
import asyncio
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import redis.asyncio

from scheduler_service.store.embedded import EmbeddedStore
from scheduler_service.store.redis_store import RedisStore
from scheduler_service.store.values import CommitRow, Fence, NewRequest, RunningRecord
from tokentide.bench.statistics import median

NUM_ROWS = 32
NUM_COMMITS = 200


@dataclass(frozen=True, slots=True)
class Row:
    commit_ms: float
    set_ms: float


def measure() -> Row:
    with tempfile.TemporaryDirectory() as folder, EmbeddedStore.start(Path(folder)) as server:
        return asyncio.run(_measure(server.url))


async def _measure(url: str) -> Row:
    async with (
        redis.asyncio.Redis.from_url(url) as plain,
        RedisStore.connect(url, pool=secrets.token_hex(8)) as store,
    ):
        fence = Fence("bench", 1)
        await store.attach_driver(fence, "bench", capacity=1_000_000)
        names = [f"request-{number}" for number in range(NUM_ROWS)]
        for name in names:
            await store.submit(_new_request(name))
        records = (await store.claim(fence, names)).claimed
        commit_ms, set_ms = [], []
        for index in range(NUM_COMMITS):
            rows = [_row(record, index) for record in records]
            started_s = time.perf_counter()
            await store.commit(fence, rows)
            committed_s = time.perf_counter()
            await plain.set("bare", b"\0" * 4 * NUM_ROWS)
            set_ms.append((time.perf_counter() - committed_s) * 1e3)
            commit_ms.append((committed_s - started_s) * 1e3)
    return Row(median(commit_ms), median(set_ms))


def _new_request(name: str) -> NewRequest:
    return NewRequest(
        request_id=name,
        payload_hash=name.encode().ljust(32, b"\0"),
        payload=b"payload",
        num_prompt_tokens=10,
        max_tokens=2 * NUM_COMMITS,
    )


def _row(record: RunningRecord, index: int) -> CommitRow:
    return CommitRow(
        request_id=record.request_id,
        assignment=record.assignment,
        index=index,
        token_ids=(index,),
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    row = measure()
    print(f"commit of {NUM_ROWS} rows: {row.commit_ms:.2f} ms, a bare SET {row.set_ms:.2f} ms")


if __name__ == "__main__":
    main()
