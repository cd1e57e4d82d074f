"""Lines of running text for a terminal or a file: what is too wide goes on in a further line, words whole."""

import os
import textwrap

from rich.console import Console

HANGING = 4  # how far what goes on is set in


def print_line(console: Console, text: str, *, style: str = "") -> None:
    """As wide as the terminal, or as COLUMNS says; into a file that nobody gave a width, one line each."""
    if console.is_terminal or os.environ.get("COLUMNS"):
        text = "\n".join(wrapped(line, console.width) for line in text.split("\n"))
    console.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)


def wrapped(line: str, width: int) -> str:
    set_in = len(line) - len(line.lstrip()) + HANGING
    parts = textwrap.wrap(
        line,
        max(width, 2 * set_in),
        subsequent_indent=" " * set_in,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(parts)
