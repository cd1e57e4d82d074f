"""What this device reads and computes at best: `python -m tokentide.bench.device_probe`, one line of JSON.

A process of its own, so that the benchmark needs no torch and the numbers no idle threads beside them.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch

READ_MIB = 512  # far more than any cache
MATRIX = 2048
REPEATS = 5  # the best counts: a peak is meant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--read-mib", type=int, default=READ_MIB)
    parser.add_argument("--matrix", type=int, default=MATRIX)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device, dtype = torch.device(arguments.device), getattr(torch, arguments.dtype)
    facts = {
        "read_bytes_per_s": read_bytes_per_s(device, dtype, arguments.read_mib),
        "flops_per_s": flops_per_s(device, dtype, arguments.matrix),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "dtype": arguments.dtype,
    }
    print(json.dumps(facts))


def read_bytes_per_s(device: torch.device, dtype: torch.dtype, size_mib: int) -> float:
    values = torch.ones(size_mib * 2**20 // dtype.itemsize, dtype=dtype, device=device)
    # The largest of all, not their sum: in half precision a sum converts, which costs more than reading.
    return size_mib * 2**20 / _best_s(values.max, device)


def flops_per_s(device: torch.device, dtype: torch.dtype, size: int) -> float:
    left, right = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / _best_s(lambda: left @ right, device)


def _best_s(work: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(REPEATS + 1):  # the first one warms up
        began_s = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began_s)
    return min(times[1:])


if __name__ == "__main__":
    main()
