"""Length distributions as users write them: `fixed:128`, `uniform:16-64`, `exponential:64:256`."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from shared.checked_values import above_zero, shown, whole_number

FORMS = "fixed:N, uniform:A-B, exponential:MEAN:CAP, lognormal:MEDIAN:SIGMA:CAP"
MAX_LENGTH = 10_000_000  # longer than any model's context, and still a prompt that can be held
MAX_MEAN_CAPS = 100  # of MEAN: beyond, nearly every draw is above the cap and drawn again
MAX_SIGMA = 16.0

Draw = Callable[[random.Random], int]


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over whole numbers from 1 on."""

    spec: str
    draw: Draw

    @classmethod
    def parse(cls, spec: str) -> "Lengths":
        """Raises ValueError with one line."""
        kind, _, rest = spec.partition(":")
        if kind not in _PARSERS:
            raise ValueError(f"{shown(spec)} is no length distribution: {FORMS}")
        try:
            return cls(spec, _PARSERS[kind](rest))
        except ValueError as error:
            message = f"{shown(spec)} is no length distribution ({error}): {FORMS}"
            raise ValueError(message) from None


def _fixed(rest: str) -> Draw:
    length = _length(rest)
    return lambda _: length


def _uniform(rest: str) -> Draw:
    low, high = map(_length, _parts(rest, "-", 2))
    if low > high:
        raise ValueError(f"{low} is above {high}")
    return lambda source: source.randint(low, high)


def _exponential(rest: str) -> Draw:
    """Drawn again until at most the cap, as Anyscale's benchmark does: the mean falls below MEAN."""
    mean_text, cap_text = _parts(rest, ":", 2)
    cap = _length(cap_text)
    mean = above_zero("the mean", _number(mean_text), MAX_MEAN_CAPS * cap)
    return _redrawn(lambda source: source.expovariate(1 / mean), cap)


def _lognormal(rest: str) -> Draw:
    median_text, sigma_text, cap_text = _parts(rest, ":", 3)
    cap = _length(cap_text)
    median = above_zero("the median", _number(median_text), cap)
    sigma = above_zero("sigma", _number(sigma_text), MAX_SIGMA)
    return _redrawn(lambda source: source.lognormvariate(math.log(median), sigma), cap)


def _redrawn(draw: Callable[[random.Random], float], cap: int) -> Draw:
    def bounded(source: random.Random) -> int:
        while True:
            length = max(1, round(draw(source)))
            if length <= cap:
                return length

    return bounded


def _parts(rest: str, separator: str, count: int) -> list[str]:
    parts = rest.split(separator)
    if len(parts) != count:
        raise ValueError(f"{count} numbers are needed, with {separator!r} between them")
    return parts


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise ValueError(f"{shown(text)} is no whole number")
    return whole_number("a length", int(text), 1, MAX_LENGTH)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is no number") from None


_PARSERS: dict[str, Callable[[str], Draw]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "exponential": _exponential,
    "lognormal": _lognormal,
}
