"""Doorbells connect again by themselves."""

import asyncio
from contextlib import aclosing

from fakes_store import make_new_request, next_of, open_redis


async def test_a_lost_subscription_is_made_again_and_says_look(valkey_url: str) -> None:
    async with open_redis(valkey_url) as opened, asyncio.timeout(20):
        assert opened.server is not None
        async with aclosing(opened.store.doorbells("replica-a")) as bells:  # type: ignore[type-var]
            await next_of(bells, ())

            await opened.server.client_kill_filter(_type="pubsub")

            await next_of(bells, ())
            await opened.store.submit(make_new_request())
            await next_of(bells, ())
