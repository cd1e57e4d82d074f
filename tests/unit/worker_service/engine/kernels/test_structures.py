"""The argument blocks are as long here as in C."""

import ctypes

from worker_service.engine.kernels import structures


def test_every_block_has_the_size_that_c_gives_it(library: ctypes.CDLL) -> None:
    library.tk_size_of.restype = ctypes.c_int64

    sizes = [library.tk_size_of(index) for index in range(len(structures.ALL) + 1)]

    assert sizes == [*(ctypes.sizeof(block) for block in structures.ALL), -1]
