"""Flags that take numbers: what no bound holds back is refused by itself."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tokentide import cli
from tokentide.bench.commands import app as bench_app
from tokentide.bench.flags import MAX_PROMPT_TOKENS, finite, numbers


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_only_finite_numbers_are_taken(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no finite number"):
        finite(float(text))


def test_finite_numbers_and_none_at_all_pass() -> None:
    assert finite(0.5) == 0.5
    assert finite(None) is None


@pytest.mark.parametrize("text", ["", ",", "0", "1,-2", "1,x", "1.5"])
def test_what_is_no_list_of_numbers_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        numbers(text)


@pytest.mark.parametrize(
    ("app", "arguments", "flag"),
    [
        (bench_app, ["chunk", "--long-prompt", str(MAX_PROMPT_TOKENS + 1)], "--long-prompt"),
        (bench_app, ["chunk", "--itl-slo-ms", "nan"], "--itl-slo-ms"),
        (bench_app, ["knee", "--share", "nan"], "--share"),
        (bench_app, ["compare", "--minutes", "nan"], "--minutes"),
        (bench_app, ["serve", "--cut-s", "nan"], "--cut-s"),
        (cli.app, ["advise", "--minutes", "nan"], "--minutes"),
        (cli.app, ["advise", "--fit-minutes", "nan"], "--fit-minutes"),
    ],
)
def test_a_flag_that_cannot_be_ends_the_command_before_it_begins(
    tmp_path: Path, app: typer.Typer, arguments: list[str], flag: str
) -> None:
    result = CliRunner().invoke(app, arguments, env={"HOME": str(tmp_path)})

    assert result.exit_code == 2
    assert flag in str(result.exception) + result.output
