"""What a driver asks of the store for its next plan: claims, and the end of those that waited too long.

Over an injected store (I12). Never waits for a store that is away: what runs goes on without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler_service.committer import Committer
from scheduler_service.planning.snapshot import Decision
from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import BatchStart, DriverReply, RunningRecord
from shared.errors import StoreRolledBack, StoreUnavailable


@dataclass(slots=True)
class Claiming:
    store: RequestStore
    committer: Committer  # knows the fence, and whether the store is there
    replied: Callable[[DriverReply], None]
    doubted: Callable[[], None]  # an answer got lost: some may have been granted
    rolled_back: Callable[[], None]  # the store has lost writes

    async def claim(self, decision: Decision, start: BatchStart | None) -> Sequence[RunningRecord]:
        """Also some that live here already, where an earlier answer got lost."""
        if not decision.claims or self.committer.is_store_down:
            return ()
        request_ids = [claim.request_id for claim in decision.claims]
        try:
            outcome = await self.store.claim(
                self.committer.fence, request_ids, decision.claim_at_least, start
            )
        except StoreRolledBack:
            self.rolled_back()
            return ()
        except StoreUnavailable:
            self.doubted()
            return ()
        self.replied(outcome.reply)
        return outcome.claimed

    async def reject(self, decision: Decision) -> None:
        if not decision.rejects or self.committer.is_store_down:
            return
        try:
            self.replied(await self.store.reject(self.committer.fence, decision.rejects))
        except StoreRolledBack:
            self.rolled_back()
        except StoreUnavailable:
            return  # the next plan says it again
