"""Lets the system back the cache's memory before it is needed, while nothing is computed.

A first write to memory costs a fault, and in a virtual machine one of the host's too: a sixth of a prefill's
time was spent on them. Touching by hand could meet a step's write, so the system is asked
(MADV_POPULATE_WRITE, Linux 5.14): contents stay as they are. Where it cannot, nothing is lost but the gain.
"""

import ctypes
import logging
import threading
from collections.abc import Callable, Iterator

from worker_service.engine.kv_cache import KVCache

logger = logging.getLogger(__name__)

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE
PAGE_BYTES = 4096
SLICE_BYTES = 2 << 20  # between two looks at whether a step runs
IDLE_S = 0.2  # after the last step
MAX_BYTES = 4 << 30  # most memory that is taken before it is asked for


def start_touching(cache: KVCache, idle_s: Callable[[], float]) -> threading.Thread | None:
    """In the background, lowest blocks first: they are handed out first. `idle_s`: since a step ran.
    None: the cache is small, or not in this memory."""
    parts = [part for layer in cache.layers for part in (layer.keys_NSKD, layer.values_NSKD)]
    if not parts or parts[0].device.type != "cpu" or cache.num_bytes < len(parts) * SLICE_BYTES:
        return None
    arrays = [(part.data_ptr(), part.numel() * part.element_size()) for part in parts]
    stop = threading.Event()  # never set: only to wait on
    touching = threading.Thread(
        target=_touch, args=(arrays, idle_s, stop), name="touch-cache", daemon=True
    )
    touching.start()
    return touching


def _touch(
    arrays: list[tuple[int, int]], idle_s: Callable[[], float], stop: threading.Event
) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, size in slices(arrays):
        while (idle := idle_s()) < IDLE_S:
            stop.wait(IDLE_S - idle)
        if libc.madvise(address, size, POPULATE_WRITE):
            logger.debug("the cache is touched as it is used: errno %d", ctypes.get_errno())
            return


def slices(arrays: list[tuple[int, int]], most: int = MAX_BYTES) -> Iterator[tuple[int, int]]:
    """(address, bytes) in whole pages inside each array: all arrays' first slices, then their next."""
    done = 0
    for offset in range(0, max(size for _, size in arrays), SLICE_BYTES):
        for address, size in arrays:
            begin = address + offset
            start = (begin if offset else begin + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES
            end = (address + min(size, offset + SLICE_BYTES)) // PAGE_BYTES * PAGE_BYTES
            if end <= start:
                continue
            if done + end - start > most:
                return
            done += end - start
            yield start, end - start
