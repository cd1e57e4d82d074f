"""A page stands alone, and shows what it is given as text."""

import re
from pathlib import Path
from typing import Any

import pytest

from tokentide.bench.data_table import DataTable, spread_text
from tokentide.bench.drawing import draw
from tokentide.bench.html_page import Section, html_page


def page_of(*sections: Section) -> str:
    return html_page("T & U", sections, command="tokentide bench x", facts={"cores": 2})


def test_text_and_cells_are_escaped() -> None:
    table = DataTable(columns=("", "a<b"), rows=[("x&y", "1")], title="<t>", note="n<")

    page = page_of(Section(heading="H<", text="p<", table=table))

    for shown in ("T &amp; U", "a&lt;b", "x&amp;y", "&lt;t&gt;", "H&lt;", "p&lt;", "n&lt;"):
        assert shown in page
    assert "tokentide bench x" in page
    assert "<td>cores</td><td>2</td>" in page


@pytest.mark.slow
def test_a_page_with_figures_needs_no_other_file_and_no_id_is_there_twice(tmp_path: Path) -> None:
    def paint(figure: Any) -> None:
        figure.subplots().plot([1, 2, 3], marker="o")

    svgs = [draw(tmp_path / name, paint) for name in ("one", "two")]
    page = page_of(*(Section(heading="h", svg=svg) for svg in svgs))

    assert (tmp_path / "one.png").exists()
    assert svgs[0].startswith("<svg")
    assert not re.search(r'(src|href)="(?!#)', page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 0
    for name in re.findall(r'(?:url\(#|href="#)([^")]+)', page):
        assert name in ids


@pytest.mark.slow
def test_the_same_data_give_the_same_svg(tmp_path: Path) -> None:
    svgs = [draw(tmp_path / "f", lambda figure: figure.subplots().plot([1, 2])) for _ in range(2)]

    assert svgs[0] == svgs[1]


def test_a_spread_is_a_median_with_its_range_where_there_is_one() -> None:
    assert spread_text([3.0, 1.0, None, 2.0], 10, 0) == "20 (10-30)"
    assert spread_text([2.0, 1.0]) == "1.5 (1.0-2.0)"
    assert spread_text([2.0]) == "2.0"
    assert spread_text([None]) == ""
