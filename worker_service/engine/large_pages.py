"""Fresh memory in large pages, where the system has them.

A first write to a small page costs a fault of its own: in a virtual machine these took a sixth of a
prefill's time. Reading weights is a quarter faster too.
"""

import mmap

import torch
from torch import Tensor

LEAST_BYTES = 4 << 20  # below, whole large pages would be mostly waste


def map_zeros(num_bytes: int) -> Tensor:
    """uint8, all 0, not touched yet: it costs what is used of it. Never given a name or a file."""
    if num_bytes < LEAST_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(num_bytes, dtype=torch.uint8)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
