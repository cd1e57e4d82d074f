"""`quarantine list` and `release`: requests that crashed their workers again and again."""

import asyncio
import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tokentide.commands.endpoints import endpoint_names
from tokentide.commands.top import connected


def list_quarantined(endpoints: str, as_json: bool) -> int:
    async def run() -> list[dict[str, object]]:
        async with connected(endpoint_names(endpoints)) as replicas:
            return await replicas[0].list_quarantined()

    found = asyncio.run(run())
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    if not found:
        print("none")
        return 0
    table = Table("request", "ago", "tenant", "prompt", "output", "why")
    for one in found:
        ago = f"{int(str(one['age_ms'])) / 1000:.0f} s"
        sizes = str(one["num_prompt_tokens"]), str(one["num_output_tokens"])
        table.add_row(str(one["request_id"]), ago, str(one["tenant"]), *sizes, str(one["error"]))
    Console().print(table)
    return 0


def release_quarantined(request_ids: Sequence[str], endpoints: str) -> int:
    """Exit code 1 if one of them was not there."""

    async def run() -> int:
        async with connected(endpoint_names(endpoints)) as replicas:
            return await replicas[0].release_quarantined(request_ids)

    num = asyncio.run(run())
    print(f"{num} of {len(request_ids)} released: their ids may be submitted anew")
    return 0 if num == len(request_ids) else 1
