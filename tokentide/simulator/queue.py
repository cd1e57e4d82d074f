"""The store's part in a simulation: waiting requests by rank, claimed by whoever comes first."""

from bisect import insort
from collections.abc import Sequence

from scheduler_service.planning.snapshot import WaitingRequest
from tokentide.simulator.requests import SimulatedRequest


class SimulatedQueue:
    def __init__(self, window_size: int) -> None:
        self._window_size = window_size
        self._waiting: list[SimulatedRequest] = []  # by rank
        self.version = 0  # another one whenever the window may be another

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: SimulatedRequest) -> None:
        """A new one, or one that comes back: at its rank."""
        insort(self._waiting, request, key=lambda waiting: waiting.rank)
        self.version += 1

    def window(self, now_ms: int) -> list[WaitingRequest]:
        return [request.waiting(now_ms) for request in self._waiting[: self._window_size]]

    def claim(self, request_ids: Sequence[str], at_least: int) -> list[SimulatedRequest]:
        """Those still waiting, in the order asked for; none if they are fewer than `at_least`."""
        found = self._find(request_ids)
        return self._take(found) if len(found) >= at_least else []

    def reject(self, request_ids: Sequence[str]) -> list[SimulatedRequest]:
        return self._take(self._find(request_ids))

    def _find(self, request_ids: Sequence[str]) -> list[SimulatedRequest]:
        window = {r.request_id: r for r in self._waiting[: self._window_size]}
        return [window[request_id] for request_id in request_ids if request_id in window]

    def _take(self, found: list[SimulatedRequest]) -> list[SimulatedRequest]:
        if found:
            taken = {request.rank for request in found}
            size = self._window_size
            head = [request for request in self._waiting[:size] if request.rank not in taken]
            self._waiting[:size] = head
            self.version += 1
        return found
