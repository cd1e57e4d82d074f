"""What came of the demo's second round: is every answer the undisturbed one, and how long did a kill hold it up?

Values in, tables and lines out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from tokentide.demo_round import Talk

Pair = tuple[Talk, Talk]  # undisturbed, and disturbed


@dataclass(frozen=True, slots=True)
class Killed:
    label: str
    at_s: float


def is_equal(calm: Talk, disturbed: Talk) -> bool:
    return (calm.token_ids, calm.text, calm.end) == (
        disturbed.token_ids,
        disturbed.text,
        disturbed.end,
    )


def longest_pauses_s(talk: Talk, killed: Sequence[Killed]) -> list[float]:
    """Before the first kill, then after each: a pause is put down to the last kill before it ended. 0: none."""
    longest_s = [0.0] * (len(killed) + 1)
    for end_s, gap_s in zip(talk.arrivals_s[1:], talk.gaps_s, strict=False):
        part = sum(kill.at_s < end_s for kill in killed)
        longest_s[part] = max(longest_s[part], gap_s)
    return longest_s


def verdicts_table(pairs: Sequence[Pair], killed: Sequence[Killed]) -> Table:
    """Of each answer its longest pauses, and whether it is what it was undisturbed."""
    title = "longest pause between two tokens, before the first kill and after each"
    table = Table(box=None, header_style="dim", padding=(0, 1), title=title, title_justify="left")
    table.add_column("request", no_wrap=True)
    for name in ("tokens", "before", *(f"{kill.label} killed" for kill in killed)):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("answer", no_wrap=True)
    for calm, disturbed in pairs:
        word, style = ("equal", "green") if is_equal(calm, disturbed) else ("DIFFERENT", "bold red")
        pauses = [f"{s:.2f} s" if s else "-" for s in longest_pauses_s(disturbed, killed)]
        name, num_tokens = disturbed.prompt.name, str(disturbed.num_tokens)
        table.add_row(name, num_tokens, *pauses, Text(word, style=style))
    return table


def verdict(pairs: Sequence[Pair], killed: Sequence[Killed]) -> list[str]:
    num_different = sum(not is_equal(*pair) for pair in pairs)
    if num_different:
        lines = [f"{num_different} of {len(pairs)} answers DIFFER from the undisturbed ones"]
    else:
        lines = [f"all {len(pairs)} answers equal the undisturbed ones"]
    for number, kill in enumerate(killed, start=1):
        pauses = [(longest_pauses_s(talk, killed)[number], talk.prompt.name) for _, talk in pairs]
        longest_s, name = max(pauses)
        held_up = f"longest pause {longest_s:.2f} s ({name})" if longest_s else "no pause"
        lines.append(f"after kill -9 {kill.label}: {held_up}")
    return lines
