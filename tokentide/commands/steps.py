"""`steps`: what each step of a running service computed, and why others were not in it."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict

from tokentide.commands.endpoints import endpoint_names
from tokentide.commands.interrupts import run_until_stopped
from tokentide.commands.step_watch import Skipped, SteppedRecord, watch_records
from tokentide.commands.top import connected
from tokentide.errors import TokentideError
from tokentide.live_view import short_name, step_line

MAX_NAMES = 4  # of those that were left out for one reason
RECENT_S = 0.5  # in which a replica has sent what it still has

Act = Callable[[SteppedRecord], None]


def steps(*, endpoints: str, once: int | None, as_json: bool) -> int:
    """`once`: so many of the last records, then the end. None: live, until stopped."""
    names = endpoint_names(endpoints)
    act = _print_json if as_json else _print_text

    async def run() -> int:
        async with connected(names) as replicas:
            watches = [watch_records(replica.endpoint) for replica in replicas]
            if once is None:
                await _watch_all(watches, act)
            else:
                for record in await recent(watches, once):
                    act(record)
        return 0

    return run_until_stopped(run)


async def recent(
    watches: Sequence[AsyncGenerator[SteppedRecord, None]], most: int
) -> list[SteppedRecord]:
    """The last ones of all replicas, those of one in order."""
    kept: list[deque[SteppedRecord]] = [deque(maxlen=most) for _ in watches]
    reading = [_each(watch, own.append) for watch, own in zip(watches, kept, strict=True)]
    try:
        async with asyncio.timeout(RECENT_S):
            await asyncio.gather(*reading)
    except TimeoutError:
        pass
    return [record for own in kept for record in own]


async def _watch_all(watches: Sequence[AsyncGenerator[SteppedRecord, None]], act: Act) -> None:
    await asyncio.gather(*(_each(watch, act) for watch in watches))
    raise TokentideError("UNAVAILABLE", "the service has ended the stream")


async def _each(watch: AsyncGenerator[SteppedRecord, None], act: Act) -> None:
    async with aclosing(watch) as records:
        async for record in records:
            act(record)


def record_text(record: SteppedRecord) -> str:
    """The step, and below it who was left out, by reason."""
    lines = [f"{record.step.worker}  {step_line(record.step).plain}"]
    if record.num_missed:
        lines.insert(0, f"  ({record.num_missed} records are missing here)")
    lines += [f"    not in it: {_reason_text(reason, who)}" for reason, who in _by_reason(record)]
    return "\n".join(lines)


def _by_reason(record: SteppedRecord) -> list[tuple[str, list[Skipped]]]:
    reasons: dict[str, list[Skipped]] = {}
    for skipped in record.skipped:
        reasons.setdefault(skipped.reason, []).append(skipped)
    return list(reasons.items())


def _reason_text(reason: str, who: Sequence[Skipped]) -> str:
    count = sum(skipped.count for skipped in who)
    named = [short_name(skipped.request_id) for skipped in who if skipped.request_id]
    shown = ", ".join(named[:MAX_NAMES]) + (", ..." if len(named) > MAX_NAMES else "")
    return f"{count} {reason}" + (f" ({shown})" if shown else "")


def _print_text(record: SteppedRecord) -> None:
    print(record_text(record), flush=True)


def _print_json(record: SteppedRecord) -> None:
    skipped = [asdict(each) for each in record.skipped]
    values = asdict(record.step) | {"skipped": skipped, "num_missed": record.num_missed}
    print(json.dumps({"step": values}), flush=True)
