"""Where the time of one step went. Knows nothing of what was done in it."""

from time import perf_counter_ns

from shared.types import StepTimings


class StepClock:
    """Each call ends a stretch of the step. Durations in nanoseconds."""

    def __init__(self) -> None:
        self._start = self._last = perf_counter_ns()
        self._prepare = self._forward = self._sample = 0

    def prepared(self) -> None:
        self._prepare = self._lap()

    def forwarded(self) -> None:
        self._forward = self._lap()

    def sampled(self) -> None:
        self._sample = self._lap()

    def timings(self) -> StepTimings:
        return StepTimings(
            prepare_ns=self._prepare,
            forward_ns=self._forward,
            sample_ns=self._sample,
            total_ns=perf_counter_ns() - self._start,
        )

    def _lap(self) -> int:
        now = perf_counter_ns()
        lap, self._last = now - self._last, now
        return lap
