"""Who used the cores: Linux's tick counters, ours (this process and all under it) and everybody's.

A figure means nothing where others computed beside it, so each row says how much they did.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

QUIET_SHARE = 0.05  # of all cores
LOOK_S = 0.5
NUM_LOOKS = 20

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Ticks:
    """Sums since the machine's start, of all cores."""

    passed: int
    idle: int
    ours: int

    def busy_share_since(self, before: "Ticks") -> float:
        passed = max(1, self.passed - before.passed)
        return 1 - (self.idle - before.idle) / passed

    def foreign_share_since(self, before: "Ticks") -> float:
        """What others computed. Processes of ours that ended in between count as others."""
        passed = max(1, self.passed - before.passed)
        ours = max(0, self.ours - before.ours) / passed
        return max(0.0, self.busy_share_since(before) - ours)


def read_ticks(proc: Path = PROC, pid: int | None = None) -> Ticks:
    fields = [int(part) for part in (proc / "stat").read_text().splitlines()[0].split()[1:9]]
    ours = _ticks_under(os.getpid() if pid is None else pid, dict(_processes(proc)))
    return Ticks(passed=sum(fields), idle=fields[3] + fields[4], ours=ours)


async def wait_quiet() -> float:
    """Until next to nothing runs, or ten seconds; the busy share of all cores at the end."""
    share, before = 1.0, read_ticks()
    for _ in range(NUM_LOOKS):
        await asyncio.sleep(LOOK_S)
        now = read_ticks()
        share, before = now.busy_share_since(before), now
        if share < QUIET_SHARE:
            break
    return share


def _processes(proc: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """(process, (parent, ticks)) of all that live."""
    for path in proc.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it just ended
        yield int(path.parent.name), (int(fields[1]), int(fields[11]) + int(fields[12]))


def _ticks_under(pid: int, processes: dict[int, tuple[int, int]]) -> int:
    children: dict[int, list[int]] = {}
    for child, (parent, _) in processes.items():
        children.setdefault(parent, []).append(child)
    total, waiting = 0, [pid]
    while waiting:
        current = waiting.pop()
        total += processes.get(current, (0, 0))[1]
        waiting += children.get(current, [])
    return total
