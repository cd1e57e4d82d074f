"""What the scheduler asks of its store.

Implemented by `redis_store` and by the tests' model. Knows nothing of Redis, grpc or time. Times in
milliseconds are by the store's own clock.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from scheduler_service.store.values import (
    AdoptOutcome,
    AttachOutcome,
    BatchStart,
    ClaimOutcome,
    CommitOutcome,
    CommitRow,
    DriverReply,
    Fence,
    LogSlice,
    NewRequest,
    PoolTotals,
    QuarantinedRequest,
    RunningRecord,
    SubmitOutcome,
    Watch,
)


class RequestStore(Protocol):
    """All calls are atomic. They raise StoreUnavailable if there is no answer: the outcome is then
    unknown, and every call may be repeated. Those with a fence raise StaleFence if it is not the
    current one, and StoreRolledBack if the store knows less than the fence: it has lost writes."""

    async def submit(self, request: NewRequest) -> SubmitOutcome:
        """Submitting it again changes nothing but its watch. Raises RequestConflict, QueueFull."""

    async def attach_pool(self, fingerprint: str) -> None:
        """Tie the pool to one model. Raises StoreRefused if it is tied to another."""

    async def attach_driver(self, fence: Fence, replica_id: str, capacity: int) -> AttachOutcome:
        """`capacity`: tokens of the largest request that the worker can run.

        The same (incarnation, epoch, replica) once more is a retry. Raises StaleFence if the
        incarnation is tombstoned, or its epoch is not above the stored one."""

    async def poll(self, fence: Fence) -> DriverReply:
        """Writes nothing unless something has lapsed; does not raise the worker's beat."""

    async def claim(
        self,
        fence: Fence,
        request_ids: Sequence[str],
        at_least: int = 1,
        batch: BatchStart | None = None,
    ) -> ClaimOutcome:
        """Assign those still waiting to this worker; none of them, if fewer than `at_least`.

        Those that run here already count, and come with their present assignment: an earlier
        answer may have been lost. A driver passes over the ones it knows."""

    async def commit(self, fence: Fence, rows: Sequence[CommitRow]) -> CommitOutcome:
        """Raises the worker's beat, also without rows: the driver's word that its worker lives."""

    async def requeue(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        """Running here -> waiting at their rank."""

    async def reject(self, fence: Fence, request_ids: Sequence[str]) -> DriverReply:
        """Waiting -> expired: their queue policy lets them wait no longer."""

    async def adopt(self, fence: Fence, records: Sequence[RunningRecord]) -> AdoptOutcome:
        """After the store has lost writes: what this worker holds, logs whole.

        Creates lost records, takes waiting ones, appends what the logs lack."""

    async def set_strategy(self, strategy: str) -> None:
        """For all replicas, which learn of it by their beat. Empty: as each is set."""

    async def reclaim(self, incarnation: str, epoch: int, beat: int) -> tuple[str, ...] | None:
        """Tombstone a dead worker and requeue its requests; their ids, none if it was done before.

        None: (epoch, beat) has changed, it lives."""

    async def read_worker_beat(self, incarnation: str) -> tuple[int, int] | None:
        """(epoch, beat) of an attached worker; None if it is unknown or tombstoned."""

    async def detach_worker(self, fence: Fence) -> tuple[str, ...]:
        """A drained or ended worker leaves: its requests return to the queue, it is tombstoned."""

    async def list_workers(self) -> tuple[str, ...]:
        """Incarnations attached and not yet swept."""

    async def cancel(self, request_ids: Sequence[str]) -> None:
        """Waiting -> cancelled at once; running -> flagged for its driver; else nothing."""

    async def watch(self, request_id: str, watch: Watch) -> bool:
        """A reader is there. False: no such request."""

    async def refresh_watches(self, replica_id: str, watches: Sequence[tuple[str, str]]) -> None:
        """(request id, nonce) pairs whose readers are still there."""

    async def unwatch(self, request_id: str, nonce: str) -> None:
        """The reader has gone: the grace of this watch begins, if it is still the present one.

        Where other streams have read the request too, they have the lease's time to refresh first.
        """

    async def read_logs(self, starts: Sequence[tuple[str, int]]) -> tuple[LogSlice | None, ...]:
        """(request id, start index) pairs -> slices; None for an unknown id."""

    async def read_payload(self, request_id: str) -> bytes | None: ...

    async def beat(self, replica_id: str) -> PoolTotals:
        """This replica lives; the answer says which others beat, and the queue's totals.

        Ends what has lapsed, and what no attached worker can run."""

    async def leave(self, replica_id: str) -> None: ...

    async def list_quarantined(self, most: int = 100) -> tuple[QuarantinedRequest, ...]:
        """The newest first."""

    async def release_quarantined(self, request_ids: Sequence[str]) -> int:
        """Forget them: their ids may be submitted anew. Returns how many there were."""

    def on_connection_lost(self, tell: Callable[[], None]) -> None:
        """`tell` is called whenever a connection to the store is lost: what comes after may be another server,
        or the same one with fewer writes."""

    def doorbells(self, replica_id: str) -> AsyncIterator[tuple[str, ...]]:
        """Hints: ids watched here whose logs grew or that ended, or an empty tuple: look at the
        queue and at the flags. May lose any."""

    async def close(self) -> None: ...
