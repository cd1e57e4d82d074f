"""Static batching: exactly `batch_size` requests begin together; nobody joins until the last has ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.planning.snapshot import Decision, Snapshot, WaitingRequest
from scheduler_service.planning.strategies.batches import Formation, plan_batch


@dataclass(frozen=True, slots=True)
class StaticStrategy:
    batch_size: int
    max_wait_ms: int = 0  # then with what is there; 0 = until the batch is full

    def plan(self, snapshot: Snapshot) -> Decision:
        return plan_batch(snapshot, lambda waiting: self._form(waiting, snapshot))

    def _form(self, waiting: Sequence[WaitingRequest], snapshot: Snapshot) -> Formation:
        # a worker that takes fewer has smaller batches, and does not wait for more
        size = min(self.batch_size, snapshot.limits.max_sequences)
        if len(waiting) >= size:
            return Formation(members=waiting[:size])
        if not waiting or not self.max_wait_ms:
            return Formation()
        wait_ms = self.max_wait_ms - max(map(snapshot.age_ms, waiting))
        return Formation(wait_ms=wait_ms) if wait_ms > 0 else Formation(members=waiting)
