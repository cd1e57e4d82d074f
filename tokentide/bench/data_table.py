"""One table for the terminal and for the HTML page: texts only. Knows nothing of what they mean."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """The first column names the rows; the others are aligned right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""  # below it

    def as_rich(self) -> Table:
        table = Table(title=escape(self.title), caption=escape(self.note) or None)
        for number, column in enumerate(self.columns):
            table.add_column(escape(column), justify="right" if number else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        return table

    def as_html(self) -> str:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "\n".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        note = f'<p class="note">{html.escape(self.note)}</p>' if self.note else ""
        return f"<table>{caption}\n<tr>{head}</tr>\n{body}\n</table>\n{note}"


def spread_text(values: Sequence[float | None], factor: float = 1.0, decimals: int = 1) -> str:
    """`median (least-greatest)`; empty if there is none."""
    known = sorted(value * factor for value in values if value is not None)
    if not known:
        return ""
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    text = f"{middle:.{decimals}f}"
    low, high = f"{known[0]:.{decimals}f}", f"{known[-1]:.{decimals}f}"
    return text if low == high else f"{text} ({low}-{high})"
