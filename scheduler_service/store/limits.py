"""The settings of a store, the same in every replica of a pool. Knows nothing of Redis."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    claim_window: int = 64  # waiting requests that a driver sees
    retention_s: int = 600  # how long an ended request can still be read
    max_queued_requests: int = 10_000
    max_queued_tokens: int = 50_000_000
    watch_lease_ms: int = 15_000  # a watch not refreshed for so long is one that ended
    outage_ms: int = 3_000  # no replica's beat for so long: then watches get a lease more
    unfit_timeout_ms: int = 30_000  # no worker can run it for so long: ended

    def __post_init__(self) -> None:
        if min(self.claim_window, self.retention_s, self.watch_lease_ms) < 1:
            raise ValueError("claim_window, retention_s and watch_lease_ms must be at least 1")
