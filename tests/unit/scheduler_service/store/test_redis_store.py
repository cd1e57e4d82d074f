"""What only the real store can show; the rest is in `tests/contract`."""

import pytest
from fakes_store import attach, make_new_request, make_row, open_redis, run_all, submit_all

from scheduler_service.store.limits import StoreLimits
from scheduler_service.store.values import Watch
from shared.errors import QueueFull


async def test_without_memory_a_submit_is_refused_and_what_runs_goes_on(valkey_url: str) -> None:
    async with open_redis(valkey_url) as opened:
        assert opened.server is not None
        fence = await attach(opened.store)
        (record,) = await run_all(opened.store, fence, "r1")
        await opened.server.config_set("maxmemory", 1)
        try:
            with pytest.raises(QueueFull):
                await opened.store.submit(make_new_request("r2"))
            outcome = await opened.store.commit(fence, [make_row(record, 0, (1,))])
            await opened.store.requeue(fence, ["r1"])
        finally:
            await opened.server.config_set("maxmemory", 0)

        assert outcome.statuses == ("appended",)


async def test_an_emptied_store_has_another_marker_and_a_lower_write_counter(
    valkey_url: str,
) -> None:
    async with open_redis(valkey_url) as opened:
        assert opened.server is not None
        await submit_all(opened.store, "r1", "r2", "r3")
        before = await opened.store.poll(await attach(opened.store))
        keys = [key async for key in opened.server.scan_iter(match=opened.prefix + "*")]
        await opened.server.delete(*keys)

        after = await opened.store.poll(await attach(opened.store))

        assert after.marker != before.marker
        assert after.write_counter < before.write_counter


async def test_long_lists_are_sent_in_pieces(valkey_url: str) -> None:
    async with open_redis(valkey_url) as opened:
        ids = [f"r{i}" for i in range(600)]
        watch = Watch(replica_id="a", nonce="n", grace_ms=1000)
        await submit_all(opened.store, *ids[:3], ids[-1], watch=watch)

        await opened.store.refresh_watches("a", [(i, "n") for i in ids])
        slices = await opened.store.read_logs([(i, 0) for i in ids])
        await opened.store.cancel(ids)

        assert [i for i, one in enumerate(slices) if one is not None] == [0, 1, 2, 599]
        assert (await opened.store.beat("a")).num_waiting == 0


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="retention_s"):
        StoreLimits(retention_s=0)
