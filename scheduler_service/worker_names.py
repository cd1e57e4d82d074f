"""Worker names to addresses: a DNS name may stand for several workers, and change."""

import asyncio
import socket
from collections.abc import Sequence


async def resolve_names(workers: str) -> Sequence[str]:
    """`name:port,name:port` -> every address behind the names; a name that does not resolve: none."""
    loop = asyncio.get_running_loop()
    addresses: list[str] = []
    for worker in filter(None, (part.strip() for part in workers.split(","))):
        host, _, port = worker.rpartition(":")
        try:
            found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            continue
        ips = {info[4][0] for info in found}
        if "127.0.0.1" in ips:
            ips.discard("::1")  # localhost is one worker, not two
        for ip in sorted(map(str, ips)):
            addresses.append(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}")
    return list(dict.fromkeys(addresses))
