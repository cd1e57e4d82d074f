"""Is anybody there? Asked before the first call, so that a wrong address is told soon."""

import asyncio

import grpc

from tokentide.commands.errors import CommandError

REACH_S = 5.0


def endpoint_names(endpoints: str) -> list[str]:
    """Comma-separated. Raises CommandError if there is none."""
    names = [name.strip() for name in endpoints.split(",") if name.strip()]
    if not names:
        raise CommandError("no endpoint given")
    return names


async def wait_any_reachable(endpoints: str, timeout_s: float = REACH_S) -> None:
    """Until one of the comma-separated endpoints takes a connection. Raises CommandError."""
    names = endpoint_names(endpoints)
    channels = [grpc.aio.insecure_channel(name) for name in names]
    tries = [asyncio.create_task(channel.channel_ready()) for channel in channels]
    try:
        done, _ = await asyncio.wait(tries, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise CommandError(f"no answer from {', '.join(names)} within {timeout_s:g} s")
    finally:
        for attempt in tries:
            attempt.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
        for channel in channels:
            await channel.close(None)
