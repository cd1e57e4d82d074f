"""A report as one HTML page that needs nothing beside it: tables, inline SVG, the command, the machine."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokentide.bench.data_table import DataTable

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: pre-line }
th:first-child, td:first-child { text-align: left }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; font-size: .85rem }
svg { max-width: 100%; height: auto }
.note { color: #666; font-size: .9rem }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What there is of it, in this order."""

    heading: str
    text: str = ""
    svg: str = ""
    table: DataTable | None = None


def html_page(
    title: str, sections: Sequence[Section], *, command: str, facts: Mapping[str, Any]
) -> str:
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for number, section in enumerate(sections):
        parts.append(f"<h2>{html.escape(section.heading)}</h2>")
        if section.text:
            parts.append(f"<p>{html.escape(section.text)}</p>")
        if section.svg:
            parts.append(_own_ids(section.svg, f"s{number}-"))
        if section.table is not None:
            parts.append(section.table.as_html())
    parts.append(f"<h2>Command</h2>\n<pre>{html.escape(command)}</pre>")
    parts.append(f"<h2>Machine and settings</h2>\n{_facts_table(facts).as_html()}")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _own_ids(svg: str, prefix: str) -> str:
    """Ids are of the whole page: two figures must not draw with each other's clips and markers."""
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
    return re.sub(r'href="#', f'href="#{prefix}', svg)


def _facts_table(facts: Mapping[str, Any]) -> DataTable:
    rows = [(name, _fact_text(value)) for name, value in facts.items()]
    return DataTable(columns=("", ""), rows=rows)


def _fact_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
