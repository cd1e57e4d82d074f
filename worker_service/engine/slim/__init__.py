"""A forward pass of our own for the Llama-shaped family, beside the one through transformers.

`shape.py` says from the config whether a model is of that shape, `weights.py` takes the weights out
of the loaded network. `compiled_forward.py` runs them in the compiled kernels; `torch_forward.py`
does without a compiler, and in other number formats. The path through transformers stays for every
other model, and is what these are checked against at load.
"""
