"""When the store has lost writes: how that is noticed, and what a driver gives back.

A store says which instance it is (marker) and counts its writes; every answer tells both. Another marker, or
a lower counter, means that it was rolled back or emptied. Pure values (I12).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from scheduler_service.planning.live import Ending, LiveSequence
from scheduler_service.store.values import RunningRecord

SPARE_RECORDS = 64  # of requests that are gone, before they are swept


@dataclass(slots=True)
class Continuity:
    """One listener's memory of the store; answers come in the order of their calls."""

    marker: str = ""
    write_counter: int = 0

    def is_broken_by(self, marker: str, write_counter: int) -> bool:
        is_broken = bool(self.marker) and (
            marker != self.marker or write_counter < self.write_counter
        )
        self.marker, self.write_counter = marker, write_counter
        return is_broken


@dataclass(slots=True)
class Holdings:
    """What the store said of the requests that live here, kept to be said back."""

    _records: dict[str, RunningRecord] = field(default_factory=dict)

    def note(self, record: RunningRecord, live: Iterable[LiveSequence]) -> None:
        # Without the log: the live sequence has it, and more of it.
        self._records[record.request_id] = replace(record, log=(), num_output_tokens=0)
        names = {sequence.request_id for sequence in live} | {record.request_id}
        if len(self._records) > 2 * len(names) + SPARE_RECORDS:
            self._records = {k: v for k, v in self._records.items() if k in names}

    def presented(self, live: Iterable[LiveSequence]) -> list[RunningRecord]:
        """Those that go on here, and those that have finished while their last rows are on the way."""
        found = []
        for sequence in live:
            record = self._records.get(sequence.request_id)
            if record is not None and sequence.ending in (None, Ending.FINISHED, Ending.PREEMPTED):
                log = tuple(sequence.output_ids)
                found.append(replace(record, log=log, num_output_tokens=len(log)))
        return found
