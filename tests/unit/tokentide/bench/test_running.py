"""What goes wrong outside ends a benchmark with one line."""

import pytest
import typer

from tokentide.bench.running import one_line_errors
from tokentide.errors import TokentideError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such thing"),
        ExceptionGroup("tasks", [ExceptionGroup("inner", [TimeoutError("no such thing")])]),
        ExceptionGroup("tasks", [TokentideError("UNAVAILABLE", "no such thing"), ValueError("x")]),
    ],
)
def test_an_error_is_told_in_one_line_also_if_tasks_raised_it(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), one_line_errors():
        raise error

    told = capsys.readouterr().err
    assert "no such thing" in told
    assert told.count("\n") == 1


def test_our_own_mistakes_keep_their_traceback() -> None:
    with pytest.raises(KeyError), one_line_errors():
        raise ExceptionGroup("tasks", [KeyError("oops")])
