"""Start-up check: is this server one that can keep the promise it is used for?

Pure but for `check_server`, which asks; knows nothing of requests.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from redis.exceptions import ResponseError

from scheduler_service.store.lane import Lane
from shared.errors import StoreRefused

log = logging.getLogger(__name__)

Durability = Literal["process", "power", "failover"]
FLOOR = (7, 0)  # the first with Functions
SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")


def server_version(info: str) -> tuple[int, ...]:
    """The Redis API version. Valkey reports the one it is compatible with (7.2)."""
    found = re.search(r"^redis_version:(\d+)\.(\d+)", info, re.MULTILINE)
    if not found:
        raise StoreRefused("the store does not say which version it is (INFO server)")
    return tuple(int(part) for part in found.groups())


def find_broken_promise(settings: Mapping[str, str], durability: Durability) -> str | None:
    """What the server's settings cannot keep, in one line; None if all is well."""
    fsync = settings.get("appendfsync")
    policy = settings.get("maxmemory-policy")
    safe_fsync = ("always", "everysec") if durability == "process" else ("always",)
    needs = f"durability '{durability}' needs"
    checks = (
        (policy == "noeviction", f"requests could be evicted: maxmemory-policy is {policy}"),
        (
            settings.get("appendonly") == "yes",
            f"{needs} the append-only file: appendonly is not yes",
        ),
        (fsync in safe_fsync, f"{needs} appendfsync {' or '.join(safe_fsync)}, it is {fsync}"),
        (
            durability == "process" or settings.get("no-appendfsync-on-rewrite") == "no",
            f"{needs} no-appendfsync-on-rewrite no",
        ),
    )
    return next((broken for is_kept, broken in checks if not is_kept), None)


async def check_server(lane: Lane, durability: Durability) -> None:
    """Raises StoreRefused, or StoreUnavailable if there is no answer."""
    levels = get_args(Durability)
    if durability not in levels:
        raise StoreRefused(f"durability '{durability}' is none of {', '.join(levels)}")
    info = (await lane.call("INFO", "server")).decode()
    version = server_version(info)
    if version < FLOOR:
        shown = ".".join(map(str, version))
        raise StoreRefused(f"the store is too old: Redis API {shown}, at least 7.0 is needed")
    if durability == "failover":
        await _check_has_replica(lane)
    settings = await _read_settings(lane)
    if settings is None:
        log.warning(
            "the store does not let us read its configuration: durability '%s' is not checked",
            durability,
        )
        return
    broken = find_broken_promise(settings, durability)
    if broken:
        raise StoreRefused(f"the store cannot keep its promise: {broken}")


async def _check_has_replica(lane: Lane) -> None:
    info = (await lane.call("INFO", "replication")).decode()
    found = re.search(r"^connected_slaves:(\d+)", info, re.MULTILINE)
    if not found or not int(found[1]):
        raise StoreRefused(
            "the store cannot keep its promise: durability 'failover' needs a replica that"
            " acknowledges, and none is connected"
        )


async def _read_settings(lane: Lane) -> dict[str, str] | None:
    settings: dict[str, str] = {}
    for name in SETTINGS:
        try:
            reply: Any = await lane.call("CONFIG", "GET", name)
        except ResponseError:
            return None
        if len(reply) == 2:
            settings[reply[0].decode()] = reply[1].decode()
    return settings
