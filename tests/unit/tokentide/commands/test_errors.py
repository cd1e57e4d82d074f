import pytest

from shared.errors import SettingError, StoreUnavailable
from tokentide import cli
from tokentide.bench.commands import app as bench_app
from tokentide.commands.errors import run_command
from tokentide.errors import TokentideError
from tokentide.resume import StreamBroken


def raising(error: BaseException):
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (SettingError("port: not a number"), 2, "error: port: not a number\n"),
        (StoreUnavailable("no answer"), 1, "error: no answer\n"),
        (TokentideError("NOT_FOUND", "no\nmodel"), 1, "error: NOT_FOUND: no model\n"),
        (
            StreamBroken("gone"),
            1,
            "error: the stream broke and could not be resumed: gone\n",
        ),
    ],
)
def test_what_went_wrong_is_one_line_and_a_status(error, status, line, capsys):
    assert run_command(raising(error)) == status
    assert capsys.readouterr().err == line


def test_a_call_that_the_port_does_not_know_names_both_ports(capsys):
    run_command(raising(TokentideError("UNIMPLEMENTED", "Method not found!")))

    told = capsys.readouterr().err
    assert told.startswith("error: UNIMPLEMENTED: Method not found! (the wrong port?")
    assert "localhost:50051" in told and "localhost:50151" in told


@pytest.mark.parametrize("app", [cli.app, bench_app])
def test_help_for_want_of_arguments_is_no_error(app, capsys):
    status = run_command(lambda: app(args=[], standalone_mode=False))

    told = capsys.readouterr().err
    assert status == 2
    assert told.startswith("Usage: ") and "error" not in told.lower()
    assert "completion" not in told


def test_our_own_mistakes_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()))


def test_ctrl_c_outside_an_event_loop_is_a_quiet_130(capsys):
    assert run_command(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""
