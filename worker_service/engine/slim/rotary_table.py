"""Cosines and sines of the positions that were reached so far, kept for the compiled forward.

A config may claim a million positions that no cache here can hold; the table grows with those that
sequences have. Knows nothing of sequences.

P positions, X = D / 2 pairs, D head width.
"""

import torch
from torch import Tensor

from worker_service.engine.slim.weights import Rotary

FIRST_POSITIONS = 4096  # computed at once: most models never need more


class RotaryTable:
    """Doubles when it has to, so a long sequence waits for it a few times, not at every step."""

    def __init__(self, rotary: Rotary, head_width: int, max_positions: int) -> None:
        self._rotary = rotary
        self._max_positions = max_positions
        self._cosine_PX = torch.empty(0, head_width // 2)  # float32
        self._sine_PX = torch.empty(0, head_width // 2)  # float32

    @property
    def bytes_per_position(self) -> int:
        return 2 * self._cosine_PX.shape[1] * self._cosine_PX.itemsize

    def up_to(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """cosine and sine, [P, D / 2], for at least so many positions."""
        assert num_positions <= self._max_positions, f"{num_positions} of {self._max_positions}"
        while len(self._cosine_PX) < num_positions:
            self._grow()
        return self._cosine_PX, self._sine_PX

    def _grow(self) -> None:
        """To the next of fixed sizes: every worker computes the same parts, and so the same bits."""
        start = len(self._cosine_PX)
        end = min(max(FIRST_POSITIONS, 2 * start), self._max_positions)
        cosine_PX, sine_PX = self._rotary(torch.arange(start, end))  # int64
        self._cosine_PX = torch.cat((self._cosine_PX, cosine_PX))
        self._sine_PX = torch.cat((self._sine_PX, sine_PX))
