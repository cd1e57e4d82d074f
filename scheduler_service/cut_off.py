"""Whether this replica alone has lost the store, while others of the pool have it.

A store that is away from all comes back to all: streams wait for it, wherever they are. One that is away from this
replica only leaves its workers and streams behind: the workers are yielded, and once one of them is seen to work for
somebody else the streams are told to go there, long before their watches lapse.

Pure bookkeeping over times and stats that are handed in (I12).
"""

from dataclasses import dataclass

from shared.types import WorkerStats

PATIENCE_S = 5.0  # without the store for so long: workers are yielded
# Steps that a worker may still do for a driver without a store, and a few more.
MOST_STEPS_WITHOUT_STORE = 16


@dataclass(slots=True)
class _Seen:
    epoch: int  # when the store was lost
    step_id: int
    later_epoch: int = 0  # granted since
    later_step_id: int = 0  # the worker's last when that was first seen


class CutOff:
    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._lost_since_s: float | None = None
        self.is_alone = False  # others have the store
        self._seen: dict[str, _Seen] = {}  # by incarnation

    def lose(self, now_s: float) -> None:
        """A call has failed."""
        if self._lost_since_s is None:
            self._lost_since_s = now_s

    def find(self) -> None:
        """A call has been answered."""
        self._lost_since_s, self.is_alone = None, False
        self._seen.clear()

    def must_yield(self, now_s: float) -> bool:
        return self._lost_since_s is not None and now_s - self._lost_since_s >= PATIENCE_S

    def others_have_it(self, stats: WorkerStats) -> bool:
        """A worker says so by working for another replica: for one that was granted it since, which takes the
        store, or for longer than anybody goes on without one."""
        has_it = self._shows_it(stats)
        self.is_alone |= has_it
        return has_it

    def _shows_it(self, stats: WorkerStats) -> bool:
        if self._lost_since_s is None:
            return False
        seen = self._seen.setdefault(stats.incarnation, _Seen(stats.epoch, stats.last_step_id))
        if not stats.driver or stats.driver == self._own_id:
            return False
        if stats.epoch > seen.epoch:
            if seen.later_epoch != stats.epoch:
                seen.later_epoch, seen.later_step_id = stats.epoch, stats.last_step_id
            return stats.last_step_id > seen.later_step_id
        return stats.last_step_id - seen.step_id > MOST_STEPS_WITHOUT_STORE
