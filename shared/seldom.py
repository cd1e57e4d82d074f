"""Says the same thing seldom: a state that lasts is no news at every retry."""

from dataclasses import dataclass, field

MAX_TEXTS = 256


@dataclass(slots=True)
class Seldom:
    every_s: float = 60.0
    _said_s: dict[str, float] = field(default_factory=dict)  # text -> when

    def is_due(self, text: str, now_s: float) -> bool:
        """Whether it is to be said now: for the first time, or again after a while."""
        if now_s - self._said_s.get(text, float("-inf")) < self.every_s:
            return False
        if len(self._said_s) >= MAX_TEXTS:
            self._said_s.clear()
        self._said_s[text] = now_s
        return True
