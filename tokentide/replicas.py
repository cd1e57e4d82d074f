"""The replicas that a client takes turns among: every address behind every endpoint it was given.

A DNS name may stand for several replicas, and for others a moment later. grpc would connect to one of them
and look again only when that one is lost; here each has a channel of its own and its turn.
"""

import asyncio
import ipaddress
import random
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import grpc

REFRESH_S = 1.0  # addresses older than this are asked for again before they are used
LOOK_UP_S = 2.0
AVOID_S = 2.0  # one that has just failed is not the next choice

ChannelOptions = Sequence[tuple[str, int]]
LookUp = Callable[[str, int], Awaitable[Sequence[str]]]


class Replica:
    """One address and the channel to it."""

    def __init__(self, address: str, options: ChannelOptions) -> None:
        self.address = address
        self.num_calls = 0  # going on
        self.avoided_until_s = 0.0  # others are taken before it
        self._channel = grpc.aio.insecure_channel(address, options=options)

    @contextmanager
    def in_call(self) -> Iterator[grpc.aio.Channel]:
        """The channel is not closed meanwhile, even if the address is gone."""
        self.num_calls += 1
        try:
            yield self._channel
        finally:
            self.num_calls -= 1

    def avoid(self, for_s: float = AVOID_S) -> None:
        self.avoided_until_s = asyncio.get_running_loop().time() + for_s

    async def close(self) -> None:
        await self._channel.close(None)


class Replicas:
    """`endpoints`: host:port, at least one. `look_up`: the addresses of a DNS name."""

    def __init__(
        self, endpoints: Sequence[str], options: ChannelOptions = (), look_up: LookUp | None = None
    ) -> None:
        self._options = options
        self._endpoints = [name.removeprefix("dns:///") for name in endpoints]
        self._look_up = look_up or look_up_name
        self._addresses: dict[str, Sequence[str]] = {name: [name] for name in self._endpoints}
        self._replicas: dict[str, Replica] = {}
        self._turn = random.randrange(1 << 16)
        self._refreshed_s = float("-inf")
        self._refreshing = asyncio.Lock()

    async def take(self) -> Replica:
        """The next one: each call has another replica, where there are several."""
        await self._refresh()
        addresses = self._all_addresses()
        now_s = asyncio.get_running_loop().time()
        for _ in addresses:
            replica = self._next_of(addresses)
            if replica.avoided_until_s <= now_s:
                return replica
        return self._next_of(addresses)  # all have failed a moment ago

    def _next_of(self, addresses: Sequence[str]) -> Replica:
        self._turn += 1
        address = addresses[self._turn % len(addresses)]
        if address not in self._replicas:
            self._replicas[address] = Replica(address, self._options)
        return self._replicas[address]

    async def close(self) -> None:
        for replica in self._replicas.values():
            await replica.close()
        self._replicas.clear()

    def _all_addresses(self) -> list[str]:
        found = (address for name in self._endpoints for address in self._addresses[name])
        return list(dict.fromkeys(found))

    async def _refresh(self) -> None:
        names = [name for name in self._endpoints if is_dns_name(name)]
        loop = asyncio.get_running_loop()
        async with self._refreshing:
            if not names or loop.time() - self._refreshed_s < REFRESH_S:
                return
            await asyncio.gather(*(self._resolve(name) for name in names))
            self._refreshed_s = loop.time()
            await self._forget_gone()

    async def _resolve(self, name: str) -> None:
        """What was known stays if there is no answer; at first that is the name itself, for grpc to judge."""
        host, _, port = name.rpartition(":")
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LOOK_UP_S):
                self._addresses[name] = await self._look_up(host, int(port)) or [name]

    async def _forget_gone(self) -> None:
        present = set(self._all_addresses())
        idle = [r for r in self._replicas.values() if r.address not in present and not r.num_calls]
        for replica in idle:
            del self._replicas[replica.address]
            await replica.close()


def is_dns_name(endpoint: str) -> bool:
    """Neither an address nor localhost nor one of grpc's other kinds of targets (unix:, ipv4: ...)."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit() or host == "localhost" or set(host) & set("/:[]"):
        return False
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return False
    return True


async def look_up_name(host: str, port: int) -> Sequence[str]:
    """Its IPv4 addresses, else its IPv6 ones: a name that has both would count a replica twice."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    by_family = {socket.AF_INET: set[str](), socket.AF_INET6: set[str]()}
    for family, _, _, _, address in found:
        if family in by_family:
            by_family[family].add(str(address[0]))
    ips = by_family[socket.AF_INET] or {f"[{ip}]" for ip in by_family[socket.AF_INET6]}
    return [f"{ip}:{port}" for ip in sorted(ips)]
