"""Runs in a container beside the schedulers: streams by their DNS name, until so many addresses have been used.

Prints one line of JSON: the addresses, and how many streams finished and failed.
"""

import asyncio
import json
import sys

from tokentide import Client

WANTED = int(sys.argv[1])
LIMIT_S = 120.0


async def main() -> None:
    used: set[str] = set()
    num_finished = num_failed = 0
    loop = asyncio.get_running_loop()
    end_s = loop.time() + LIMIT_S

    async def read(client: Client, number: int) -> None:
        nonlocal num_finished, num_failed
        while len(used) < WANTED and loop.time() < end_s:
            try:
                async for _ in client.generate("The sea", seed=number, max_tokens=40):
                    # No public face shows it: which replica a stream is on is nobody's business else.
                    used.update(r.address for r in client._replicas._replicas.values())
                num_finished += 1
            except Exception as error:
                print(repr(error), file=sys.stderr)
                num_failed += 1

    async with Client("scheduler:50051") as client:
        await asyncio.gather(*(read(client, number) for number in range(6)))
    print(json.dumps({"addresses": sorted(used), "finished": num_finished, "failed": num_failed}))


asyncio.run(main())
