"""Flags of the peers' bench that cannot be end it before anything is forgotten or started."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.peers.__main__ import app


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--step-tokens", "foo"), "a system and tokens, as vllm=512"),
        (("--step-tokens", "vllm="), "a system and tokens"),
        (("--step-tokens", "nobody=5"), "a system and tokens"),
        (("--again", "everyone"), "--again everyone"),
        (("--only", "nobody"), "unknown: nobody"),
        (("--repeat", "0"), "--repeat"),
        (("--docs", "x.md", "--only", "ours"), "takes everything"),
    ],
)
def test_what_cannot_be_is_one_line(flags: tuple[str, ...], told: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("kept\n")

    result = CliRunner().invoke(app, [*flags, "--rows", str(rows)])

    assert result.exit_code == 2
    assert told in result.output
    assert rows.read_text() == "kept\n"


def test_without_flags_it_measures() -> None:
    assert not typer.main.get_command(app).no_args_is_help
