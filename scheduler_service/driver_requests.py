"""One driver's requests, between the store's terms and the planner's: records in, commit rows out.

Opens and closes their stop strings, and keeps what the store said of them. No calls (I12).
"""

from collections.abc import Callable, Iterable, Sequence

from scheduler_service.driver_values import TextStops, admissible, commit_row
from scheduler_service.planning.live import Admissible
from scheduler_service.planning.live_table import LiveTable
from scheduler_service.planning.outcome import TokenRow
from scheduler_service.planning.results import ended_row
from scheduler_service.repair import Holdings
from scheduler_service.request_spec import RequestSpec
from scheduler_service.store.values import CommitRow, RunningRecord


class DriverRequests:
    def __init__(
        self, text_stops: TextStops, read_spec: Callable[[bytes], RequestSpec], live: LiveTable
    ) -> None:
        self._text_stops = text_stops
        self._read_spec = read_spec
        self._live = live
        self._holdings = Holdings()

    def take(self, record: RunningRecord, *, is_held: bool) -> Admissible:
        self._holdings.note(record, self._live)
        spec = self._read_spec(record.payload)
        request, stop_strings = admissible(record, spec, is_held=is_held)
        if stop_strings:
            self._text_stops.open(request, stop_strings)
        return request

    def take_claimed(
        self, claimed: Sequence[RunningRecord], *, is_held: bool
    ) -> tuple[list[Admissible], list[CommitRow]]:
        """Those that have to run, and the rows of those whose log is complete already."""
        new = [record for record in claimed if record.request_id not in self._live]
        requests = [self.take(r, is_held=is_held and bool(r.batch_id)) for r in new]
        ends = [(request, ended_row(request, self._text_stops.find)) for request in requests]
        to_run = [request for request, end in ends if end is None]
        return to_run, self.rows(end for _, end in ends if end is not None)

    def rows(self, rows: Iterable[TokenRow]) -> list[CommitRow]:
        rows = list(rows)
        self.let_go(row.request_id for row in rows if row.end is not None)
        return [commit_row(row) for row in rows]

    def let_go(self, request_ids: Iterable[str]) -> None:
        """They have ended, or run elsewhere."""
        for request_id in request_ids:
            self._text_stops.close(request_id)

    def presented(self) -> list[RunningRecord]:
        """What the store is told, should it have lost them."""
        return self._holdings.presented(self._live)
