"""Dynamic batching by the rules that Triton Inference Server documents for its dynamic batcher.

The largest preferred size that can be formed now; else nothing until the oldest has waited
`max_queue_delay_ms`, then what is there, up to `max_batch_size`. Without preferred sizes a full batch
is the preferred one. Each priority level has its queue policy.
Source of the rules: docs/user_guide/batcher.md and model_config.proto of triton-inference-server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_service.planning.snapshot import Decision, Snapshot, WaitingRequest
from scheduler_service.planning.strategies.batches import Formation, plan_batch
from shared.strategy import QueuePolicy, StrategySettings


@dataclass(frozen=True, slots=True)
class DynamicStrategy:
    settings: StrategySettings

    def plan(self, snapshot: Snapshot) -> Decision:
        late = {
            request.request_id
            for request in snapshot.waiting
            if _is_late(request, self.settings.queue_policy(request.priority), snapshot)
        }
        rejects = [
            request
            for request in snapshot.waiting
            if request.request_id in late
            and self.settings.queue_policy(request.priority).timeout_action == "reject"
        ]

        def form(waiting: Sequence[WaitingRequest]) -> Formation:
            # Delayed ones go behind all of their own and of more important levels that are in time.
            order = sorted(waiting, key=lambda r: (r.priority, r.request_id in late))
            return self._form(order, snapshot)

        may_begin = snapshot.is_first_worker or not self.settings.preserve_ordering
        return plan_batch(snapshot, form, rejects, may_begin=may_begin)

    def _form(self, waiting: Sequence[WaitingRequest], snapshot: Snapshot) -> Formation:
        settings = self.settings
        if not waiting:
            return Formation()
        most = min(settings.max_batch_size, snapshot.limits.max_sequences)
        preferred = tuple(size for size in settings.preferred_batch_sizes if size <= most)
        sizes = preferred or (most,)
        size = max((size for size in sizes if size <= len(waiting)), default=0)
        if size:
            return Formation(members=waiting[:size])
        wait_ms = settings.max_queue_delay_ms - max(map(snapshot.age_ms, waiting))
        if wait_ms > 0:
            return Formation(wait_ms=wait_ms)
        return Formation(members=waiting[:most])


def _is_late(request: WaitingRequest, policy: QueuePolicy, snapshot: Snapshot) -> bool:
    """Whether its time in the queue is over. Its own timeout can only shorten the level's."""
    timeout_ms = policy.default_timeout_ms
    if policy.allow_timeout_override and request.queue_timeout_ms:
        own = request.queue_timeout_ms
        timeout_ms = min(own, timeout_ms) if timeout_ms else own
    return bool(timeout_ms) and snapshot.age_ms(request) >= timeout_ms
