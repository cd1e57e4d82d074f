"""Tokens a second, from counters that come, go and begin anew.

Knows neither what is counted nor the clock: whoever asks tells the time.
"""

from collections import deque
from collections.abc import Mapping

WINDOW_S = 3.0  # counters are told twice a second: over less, a rate would jump
LEAST_S = 0.9  # of two readings at almost the same time nothing can be said


class TokenRate:
    """Only what a counter has gained since it was last read counts: never what it brings along."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._gains: deque[tuple[float, int]] = deque()  # when, and of all counters since before

    def on_counts(self, counts: Mapping[str, int], now_s: float) -> None:
        """By name. Of a counter that several tell, an older count changes nothing."""
        known = {name: count for name, count in counts.items() if name in self._counts}
        gain = sum(max(count - self._counts[name], 0) for name, count in known.items())
        for name, count in counts.items():
            self._counts[name] = max(count, self._counts.get(name, 0))
        self._gains.append((now_s, gain))
        while len(self._gains) > 2 and now_s - self._gains[0][0] > WINDOW_S:
            self._gains.popleft()

    def forget(self, name: str) -> None:
        """It begins anew."""
        self._counts.pop(name, None)

    @property
    def per_s(self) -> str:
        if not self._gains:
            return "-"
        took_s = self._gains[-1][0] - self._gains[0][0]
        if took_s < LEAST_S:
            return "-"
        return f"{sum(gain for _, gain in list(self._gains)[1:]) / took_s:.1f}"
