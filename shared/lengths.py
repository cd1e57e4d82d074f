"""Length distributions as users write them: `fixed:128`, `uniform:16-64`, `exponential:64:256`."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

FORMS = "fixed:N, uniform:A-B, exponential:MEAN:CAP, lognormal:MEDIAN:SIGMA:CAP"

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
        try:
            draw = _PARSERS[kind](rest)
        except (KeyError, ValueError) as error:
            detail = f" ({error})" if isinstance(error, ValueError) else ""
            raise ValueError(f"{spec!r} is no length distribution{detail}: {FORMS}") from None
        return cls(spec, draw)


def _fixed(rest: str) -> Draw:
    length = _positive(int(rest))
    return lambda _: length


def _uniform(rest: str) -> Draw:
    low, high = (_positive(int(part)) for part in rest.split("-"))
    if low > high:
        raise ValueError(f"{low} is above {high}")
    return lambda source: source.randint(low, high)


def _exponential(rest: str) -> Draw:
    """Drawn again until at most the cap, as Anyscale's benchmark does: the mean falls below MEAN."""
    mean_text, cap_text = rest.split(":")
    mean, cap = float(mean_text), _positive(int(cap_text))
    if mean <= 0:
        raise ValueError("the mean must be above 0")
    return _redrawn(lambda source: source.expovariate(1 / mean), cap)


def _lognormal(rest: str) -> Draw:
    median_text, sigma_text, cap_text = rest.split(":")
    median, sigma, cap = float(median_text), float(sigma_text), _positive(int(cap_text))
    if median <= 0 or sigma <= 0:
        raise ValueError("median and sigma must be above 0")
    if median > cap:
        raise ValueError("the median is above the cap")
    return _redrawn(lambda source: source.lognormvariate(math.log(median), sigma), cap)


def _redrawn(draw: Callable[[random.Random], float], cap: int) -> Draw:
    def bounded(source: random.Random) -> int:
        while True:
            length = max(1, round(draw(source)))
            if length <= cap:
                return length

    return bounded


def _positive(number: int) -> int:
    if number < 1:
        raise ValueError("lengths start at 1")
    return number


_PARSERS: dict[str, Callable[[str], Draw]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "exponential": _exponential,
    "lognormal": _lognormal,
}
