"""Kernels in C for the CPU path, compiled at start for the very machine; torch does without them.

`build.py` compiles and loads `kernels.c`, `structures.py` mirrors its argument blocks, `Kernels` in
`kernels.py` is what others call. Knows nothing of models, sequences or block ownership.
"""
