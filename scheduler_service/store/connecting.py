"""Makes connections to the server from a URL. Knows nothing of what is sent over them."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import connection as redis_connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from scheduler_service.store.lane import Connection
from shared.errors import StoreRefused


def connection_maker(url: str, *, io_timeout_s: float) -> Callable[[], Connection]:
    """`url`: redis://, rediss:// or unix://, with password and database as redis-py reads them."""
    try:
        arguments: dict[str, Any] = dict(redis_connection.parse_url(url))
    except ValueError as error:
        raise StoreRefused(f"the store's URL cannot be used: {error}") from error
    kind = arguments.pop("connection_class", redis_connection.Connection)
    arguments |= {
        "protocol": 2,
        "socket_timeout": io_timeout_s,
        "socket_connect_timeout": io_timeout_s,
        "retry": Retry(NoBackoff(), 0),  # the lane connects again by itself
        "health_check_interval": 0,
    }
    if kind is redis_connection.UnixDomainSocketConnection:
        arguments.pop("socket_connect_timeout")

    def make() -> Connection:
        made: Connection = kind(**arguments)
        return made

    return make


def without_password(url: str) -> str:
    """For messages and logs."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"***@{host}").geturl()
