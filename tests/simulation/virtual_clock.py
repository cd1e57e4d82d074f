"""An event loop whose time is made up: it jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: when nothing is ready, the loop's time moves on by what it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits and no timer runs")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualClockLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jumping.now_s
