"""Values of a file that somebody wrote, judged one by one: the kind, then the range.

JSON has NaN, numbers beyond every float, and true where a number should be; none of them may reach
arithmetic that takes them for one. Each function gives the value back or raises ValueError with one
line that names it.
"""

from typing import Any

_LONGEST_SHOWN = 60  # characters of a value in a message


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """In [low, high]. 3.0 is none: who writes it means something else."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number in [{low}, {high}], got {shown(value)}")
    return value


def number(name: str, value: Any, low: float, high: float) -> float:
    """In [low, high], as it is: whole ones stay whole. NaN is in no range."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ValueError(f"{name} must be a number in [{low:g}, {high:g}], got {shown(value)}")
    return value  # type: ignore[no-any-return]


def above_zero(name: str, value: Any, high: float) -> float:
    """In (0, high]."""
    if type(value) not in (int, float) or not 0 < value <= high:
        raise ValueError(f"{name} must be a number in (0, {high:g}], got {shown(value)}")
    return value  # type: ignore[no-any-return]


def truth(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{name} must be true or false, got {shown(value)}")
    return value


def text(name: str, value: Any) -> str:
    """Not empty, and of characters that can be written down."""
    if not isinstance(value, str) or not value or not can_be_written(value):
        raise ValueError(f"{name} must be a text that is not empty, got {shown(value)}")
    return value


def mapping(name: str, value: Any, known: frozenset[str] | None = None) -> dict[str, Any]:
    """A JSON object; with `known`, of no other keys."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {shown(value)}")
    if known is not None and (unknown := sorted(set(value) - known)):
        raise ValueError(f"{shown(unknown[0])} is unknown in {name}")
    return value


def can_be_written(value: str) -> bool:
    """JSON may hold halves of characters, which no encoding has."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def shown(value: Any) -> str:
    """As a message names it: short, on one line, and possible to write."""
    line = repr(value)
    if len(line) <= _LONGEST_SHOWN:
        return line
    return f"{line[:_LONGEST_SHOWN]}... ({len(line):,} characters)"


def shown_name(name: str) -> str:
    """The same without quotes: of a key, say."""
    line = shown(name)
    return line[1:].removesuffix(line[0])
