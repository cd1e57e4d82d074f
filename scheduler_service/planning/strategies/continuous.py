"""Continuous batching: each step's batch is formed anew.

What runs goes first, then waiting requests come in one by one. Knows nothing of steps before or after
this one.
"""

from dataclasses import dataclass

from scheduler_service.planning.snapshot import Decision, SkipReason, Snapshot
from scheduler_service.planning.strategies.door import admit, admit_nobody
from scheduler_service.planning.strategies.draft import Draft
from scheduler_service.planning.strategies.running import serve_running


@dataclass(frozen=True, slots=True)
class ContinuousStrategy:
    is_guaranteed: bool = False  # whoever comes in has all blocks that it can come to need
    refill_delay_ms: int = 0  # while anything runs, so long between two admissions

    def plan(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        live, is_short = serve_running(snapshot, draft)
        if is_short:
            admit_nobody(snapshot, draft, SkipReason.ADMISSION_PAUSED)
        elif len(live) and snapshot.ms_since_admission < self.refill_delay_ms:
            admit_nobody(snapshot, draft, SkipReason.REFILL_DELAY)
        else:
            admit(snapshot, live, draft, is_guaranteed=self.is_guaranteed)
        return draft.decision()
