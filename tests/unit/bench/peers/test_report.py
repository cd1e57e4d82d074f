"""What the document says of rows that other code made."""

from pathlib import Path

from bench.peers.code import SERVING, code_version
from bench.peers.driver import Outcome
from bench.peers.report import document, stale_text
from bench.peers.rows import Key, Row


def make_outcome(*codes: str) -> Outcome:
    rows = [
        Row(key=Key("one", "ours", 512, number), cpu="", figures={"tokens_per_s": 1.0}, code=code)
        for number, code in enumerate(codes)
    ]
    return Outcome(rows={row.key: row for row in rows}, code="now")


def test_rows_of_ours_of_other_code_are_counted_and_how_to_renew_them_is_said() -> None:
    outcome = make_outcome("now", "before", "")

    assert stale_text(outcome).startswith("2 of 3 rows of ours are of other code")
    assert "--again ours" in document(outcome, [])[0]
    assert stale_text(make_outcome("now")) == ""


def test_the_version_is_of_what_serves_and_of_nothing_else(tmp_path: Path) -> None:
    for name in SERVING:
        (tmp_path / name).mkdir()
    served, other = tmp_path / SERVING[0] / "a.py", tmp_path / SERVING[0] / "a.md"
    served.write_text("1")
    before = code_version(tmp_path)

    other.write_text("notes")
    assert code_version(tmp_path) == before
    served.write_text("2")
    assert code_version(tmp_path) != before
