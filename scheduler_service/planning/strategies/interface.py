"""What every batching strategy is: a value that turns a snapshot into a decision."""

from typing import Protocol

from scheduler_service.planning.snapshot import Decision, Snapshot


class Strategy(Protocol):
    """A frozen dataclass of the strategy's own settings. Keeps nothing between steps."""

    def plan(self, snapshot: Snapshot) -> Decision: ...
