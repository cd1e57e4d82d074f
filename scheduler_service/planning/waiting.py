"""The waiting requests as one driver sees them, and what it remembers of some.

Knows nothing of Redis, workers or time.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace

from scheduler_service.planning.snapshot import WaitingRequest

MAX_NOTES = 4096  # waiting requests of which something is remembered; the oldest are forgotten


@dataclass(slots=True)
class WaitingView:
    window: tuple[WaitingRequest, ...] = ()
    num_waiting: int = 0
    num_unfit: int = 0
    seen_ms: int = 0  # by the driver's clock
    # Later requests that were let in here past a blocked one.
    _bypasses: dict[str, int] = field(default_factory=dict)
    # Tokens that were computed here before a preemption.
    _preempted_at: dict[str, int] = field(default_factory=dict)

    def see(
        self,
        window: Iterable[WaitingRequest],
        num_waiting: int,
        num_unfit: int = 0,
        now_ms: int = 0,
    ) -> None:
        """The store's newest answer. `num_unfit` of the waiting cannot run here: not in the window."""
        self.window = tuple(window)
        self.num_waiting = num_waiting
        self.num_unfit = num_unfit
        self.seen_ms = now_ms
        for notes in (self._bypasses, self._preempted_at):
            while len(notes) > MAX_NOTES:
                del notes[next(iter(notes))]

    @property
    def num_beyond(self) -> int:
        return max(0, self.num_waiting - len(self.window) - self.num_unfit)

    def claimable(self, live: Container[str]) -> tuple[WaitingRequest, ...]:
        """The window without what lives here already, with the present bypass counts."""
        bypasses = self._bypasses
        return tuple(
            replace(w, num_bypasses=bypasses[w.request_id]) if w.request_id in bypasses else w
            for w in self.window
            if w.request_id not in live
        )

    def note_bypasses(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._bypasses[request_id] = self._bypasses.get(request_id, 0) + 1

    def note_preemption(self, request_id: str, num_computed_tokens: int) -> None:
        self._preempted_at[request_id] = num_computed_tokens

    def admit(self, request_id: str) -> int:
        """It waits no more. Returns the tokens that were computed here before."""
        self._bypasses.pop(request_id, None)
        return self._preempted_at.pop(request_id, 0)
