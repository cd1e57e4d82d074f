"""Sequences that a worker holds though the store says that they are not its own: the first plan releases them."""

from scheduler_service.planning.live import RELEASE_REASON, Ending
from shared.types import Release


class Strays:
    def __init__(self) -> None:
        self._num_blocks: dict[int, int] = {}  # by handle
        self._release_step = 0

    @property
    def num_blocks(self) -> int:
        return sum(self._num_blocks.values())

    @property
    def are_to_be_released(self) -> bool:
        return bool(self._num_blocks) and not self._release_step

    def add(self, handle: int, num_blocks: int) -> None:
        self._num_blocks[handle] = num_blocks

    def release(self, step_id: int) -> list[Release]:
        """What the plan of this step says of them."""
        if not self.are_to_be_released:
            return []
        self._release_step = step_id
        reason = RELEASE_REASON[Ending.STALE]
        return [Release(handle=handle, reason=reason) for handle in self._num_blocks]

    def drop_released(self, step_id: int) -> None:
        """The result of this step is here."""
        if 0 < self._release_step <= step_id:
            self._num_blocks.clear()
