"""Arithmetic on blocks of the KV cache."""


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens of one sequence."""
    return -(-num_tokens // block_size)


def blocks_to_run(num_prompt_tokens: int, max_tokens: int, block_size: int) -> int:
    """Most blocks a request can come to need: the one admission formula, at submit and at run time.

    The last sampled token is never computed, so its place is not needed.
    """
    return blocks_for(num_prompt_tokens + max_tokens - 1, block_size)
