"""The live sequences of one driver, by handle and by request. Knows nothing of plans in flight."""

from collections.abc import Iterator, Sequence

from scheduler_service.planning.batch import RunningBatch
from scheduler_service.planning.live import RELEASE_REASON, Admissible, Ending, LiveSequence
from shared.prefixes import prefix_hashes
from shared.types import Release


class LiveTable:
    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._by_handle: dict[int, LiveSequence] = {}
        self._by_request: dict[str, LiveSequence] = {}
        self._next_handle = 1
        self._next_rank = 0

    def __len__(self) -> int:
        return len(self._by_handle)

    def __iter__(self) -> Iterator[LiveSequence]:
        return iter(self._by_handle.values())

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._by_request

    def get(self, request_id: str) -> LiveSequence | None:
        return self._by_request.get(request_id)

    def by_handle(self, handle: int) -> LiveSequence | None:
        return self._by_handle.get(handle)

    def pass_handle(self, handle: int) -> None:
        """It is in use at the worker: new ones come after it."""
        self._next_handle = max(self._next_handle, handle + 1)

    def draw_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle - 1

    def add(
        self,
        request: Admissible,
        handle: int,
        output_ids: list[int],
        *,
        num_preempted_tokens: int,
    ) -> LiveSequence:
        """`num_preempted_tokens`: computed here before a preemption."""
        num_tokens = len(request.prompt_ids) + len(output_ids)
        live = LiveSequence(
            request=request,
            handle=handle,
            rank=self._next_rank,
            output_ids=output_ids,
            prefix_hashes=prefix_hashes(request.prompt_ids, request.cache_salt),
            num_committed=len(output_ids),
            num_admitted_tokens=num_tokens,
            num_recompute_tokens=max(num_tokens - 1 if output_ids else 0, num_preempted_tokens),
            is_replay=request.attempts > 0 and not num_preempted_tokens,
        )
        live.restart_prediction(self._block_size)
        self._next_rank += 1
        self._by_handle[handle] = live
        self._by_request[request.request_id] = live
        return live

    def forget(self, live: LiveSequence) -> None:
        del self._by_handle[live.handle]
        self._by_request.pop(live.request_id, None)

    def output_of(self, request_id: str) -> Sequence[int]:
        live = self._by_request.get(request_id)
        return live.output_ids if live is not None else ()

    def goes_on(self, request_id: str) -> bool:
        """Whether more will come of it here. One that has ended may have lost its end with the store's writes."""
        live = self._by_request.get(request_id)
        return live is not None and live.ending in (None, Ending.PREEMPTED)

    @property
    def has_unreleased(self) -> bool:
        return any(s.ending is not None and not s.release_step for s in self)

    def release_ended(self, step_id: int) -> list[Release]:
        """What the plan of this step says of those that have ended and are still at the worker."""
        releases = []
        for sequence in self:
            if sequence.ending is not None and not sequence.release_step:
                sequence.release_step = step_id
                reason = RELEASE_REASON[sequence.ending]
                releases.append(Release(handle=sequence.handle, reason=reason))
        return releases

    def forget_released(self, step_id: int) -> list[LiveSequence]:
        """Those that this step released: they have left the worker."""
        gone = [s for s in self if 0 < s.release_step <= step_id]
        for live in gone:
            self.forget(live)
        return gone

    def num_going_on(self, batch: RunningBatch) -> int:
        """Members of the batch that have not ended."""
        lives = (self._by_request.get(request_id) for request_id in batch.members)
        return sum(live is not None and live.ending is None for live in lives)
