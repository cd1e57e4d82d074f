"""Doorbells: hints that something has changed, over pub/sub. A slow poll covers lost ones."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from scheduler_service.store.codec import bell_ids
from scheduler_service.store.lane import Connection

log = logging.getLogger(__name__)

QUIET_S = 10.0  # without a message for so long: ask whether the connection is still there
MAX_BACKOFF_S = 1.0


async def listen(
    make_connection: Callable[[], Connection], prefix: str, replica_id: str
) -> AsyncIterator[tuple[str, ...]]:
    """Rings until it is closed. A lost connection is made again, and an empty ring follows."""
    everyone = f"{prefix}bell:all".encode()
    channels = (everyone, f"{prefix}bell:{replica_id}".encode())
    backoff_s = 0.02
    while True:
        connection = make_connection()
        try:
            await connection.connect()
            await _send(connection, "SUBSCRIBE", *channels)
            while True:
                kind, channel, message = await _read(connection)
                backoff_s = 0.02
                if kind == b"message":
                    yield () if channel == everyone else bell_ids(message)
                elif kind == b"subscribe" and message == len(channels):
                    yield ()
        except (RedisError, OSError) as error:
            log.debug("doorbells lost: %s", error)
        except (
            Exception
        ):  # a bug, of ours or of the client library: another connection may do better
            log.exception("the doorbells' connection failed by a bug")
        finally:
            with suppress(Exception):
                await connection.disconnect(nowait=True)
        await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
        backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)


async def _read(connection: Connection) -> tuple[bytes, bytes, Any]:
    reply = await connection.read_response(disable_decoding=True, timeout=QUIET_S)
    if reply is None:
        await _send(connection, "PING")
        reply = await connection.read_response(disable_decoding=True, timeout=QUIET_S)
        if reply is None:
            raise OSError("the store does not answer a ping")
    return (reply[0], *reply[1:3]) if len(reply) >= 3 else (reply[0], b"", b"")


async def _send(connection: Connection, *command: bytes | str) -> None:
    packed = connection.pack_commands([command])
    await connection.send_packed_command(packed, check_health=False)
