"""How much memory there is, and how many blocks of the cache fit into it.

Knows nothing of models. Linux's /proc and control groups, CUDA, and NVML where it is there.
"""

import logging
from dataclasses import dataclass
from importlib import import_module
from os import sysconf
from pathlib import Path
from typing import Any

import torch

from shared.errors import ModelUnusable
from shared.types import MemoryStats

log = logging.getLogger(__name__)

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
STATM = Path("/proc/self/statm")
GIB = 1 << 30
NO_LIMIT = 1 << 60
# What a worker takes beside weights and cache: Python, torch, and the tensors of a step.
LEAST_BESIDE_BYTES = 320 << 20
USUAL_BESIDE_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBudget:
    """What the cache may take: a number of blocks, of bytes, or a share of what is free."""

    num_blocks: int = 0  # 0 = by bytes
    num_bytes: int = 0  # 0 = a share of free memory
    share: float = 0.5


def count_blocks(
    budget: KVBudget, bytes_per_block: int, most_useful: int, device: str, beside_bytes: int = 0
) -> int:
    """Blocks for the cache; never more than `most_useful`, unless asked for by number.

    `beside_bytes`: what each block may come to need elsewhere. It is part of a share of what is free,
    and not of a size that was named.
    """
    if budget.num_blocks:
        return budget.num_blocks
    num_bytes = budget.num_bytes
    if not num_bytes:
        num_bytes = int(free_bytes(device) * budget.share)
        bytes_per_block += beside_bytes
    num_blocks = min(num_bytes // bytes_per_block, most_useful)
    if num_blocks < 1:
        raise ModelUnusable(
            f"no block of the cache fits: one takes {bytes_per_block:,} bytes, "
            f"{num_bytes:,} are there for all (see kv_memory, block_size)"
        )
    return num_blocks


def free_bytes(device: str) -> int:
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return min(_available_bytes(), _cgroup_free_bytes(CGROUP))


def refuse_beyond_limit(needs: dict[str, int], device: str) -> None:
    """Raises ModelUnusable where the control group's limit surely does not hold these bytes, named.

    Said here because the kernel ends a process beyond its limit without a word, and late: the cache is
    backed only as it is touched.
    """
    if told := _beyond_limit(needs, LEAST_BESIDE_BYTES, device):
        raise ModelUnusable(told)


def warn_near_limit(needs: dict[str, int], device: str) -> None:
    if told := _beyond_limit(needs, USUAL_BESIDE_BYTES, device):
        log.warning("%s", told)


def _beyond_limit(needs: dict[str, int], beside: int, device: str) -> str | None:
    limit = limit_bytes()
    if limit is None or device.startswith("cuda") or sum(needs.values()) + beside <= limit:
        return None
    parts = "".join(f"{amount / GIB:.2f} GiB for {name}, " for name, amount in needs.items())
    return (
        f"the memory limit is {limit / GIB:.2f} GiB, and this takes {parts}and about "
        f"{USUAL_BESIDE_BYTES / GIB:.1f} GiB for the rest: raise the limit, or lower what it takes"
    )


def limit_bytes() -> int | None:
    """The control group's limit, of version 2 or 1; None where there is none."""
    limit, _ = _limit_and_used(CGROUP)
    return limit


def process_bytes() -> int:
    """Resident memory of this process."""
    try:
        return int(STATM.read_text().split()[1]) * sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class MemoryProbe:
    """Memory of the process and the device, cheap enough for every step."""

    def __init__(self, device: str, kv_bytes: int) -> None:
        self._device = device
        self._kv_bytes = kv_bytes
        self._nvml = _open_nvml(device)

    def read(self) -> MemoryStats:
        stats = MemoryStats(process_bytes=process_bytes(), kv_bytes=self._kv_bytes)
        if not self._device.startswith("cuda"):
            return stats
        used, total = self._device_bytes()
        return MemoryStats(
            process_bytes=stats.process_bytes,
            kv_bytes=stats.kv_bytes,
            device_used_bytes=used,
            device_total_bytes=total,
            device_reserved_bytes=torch.cuda.memory_reserved(torch.device(self._device)),
        )

    def _device_bytes(self) -> tuple[int, int]:
        if self._nvml is None:
            free, total = torch.cuda.mem_get_info(torch.device(self._device))
            return total - free, total
        library, handle = self._nvml
        info = library.nvmlDeviceGetMemoryInfo(handle)
        return int(info.used), int(info.total)


def _available_bytes() -> int:
    for line in MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup_free_bytes(root: Path) -> int:
    """What the control group's limit leaves; no limit reads as endless."""
    limit, used = _limit_and_used(root)
    return NO_LIMIT if limit is None else max(0, limit - used)


def _limit_and_used(root: Path) -> tuple[int | None, int]:
    """Bytes, of version 2 or 1. None: no limit, which version 2 calls "max", version 1 a number near 2**63."""
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit = (root / limit_name).read_text().strip()
        except OSError:
            continue
        try:
            used = int((root / used_name).read_text())
        except (OSError, ValueError):
            used = 0
        return (int(limit) if limit.isdigit() and int(limit) < NO_LIMIT else None), used
    return None, 0


def _open_nvml(device: str) -> tuple[Any, Any] | None:
    """The NVML library and this device's handle, if both are there: same card, by its bus."""
    if not device.startswith("cuda"):
        return None
    try:
        library = import_module("pynvml")
        library.nvmlInit()
        properties = torch.cuda.get_device_properties(torch.device(device))
        return library, library.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
    except Exception:  # whatever is missing or forbidden: CUDA's own figures serve as well
        return None
