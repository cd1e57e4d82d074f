"""What a user did wrong, or the world, as one line on stderr. Tracebacks are for our own mistakes."""

import sys
from collections.abc import Callable

from shared.errors import ServingError, SettingError, StoreRefused
from tokentide.commands.flags import CLIENT_ENDPOINT, OPERATIONS_ENDPOINT

USAGE = 2  # as command lines have it
FAILED = 1
NO_ARGUMENTS = (
    "NoArgsIsHelpError"  # the argument parser's, whose message is the help: no error of anybody's
)


class CommandError(ServingError):
    """The command cannot do what was asked; the message is one clear line."""


def run_command(command: Callable[[], int]) -> int:
    """The command's exit status, or that of the error it raised."""
    try:
        return command()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; there is nobody to flush to
        return 141
    except Exception as error:
        if type(error).__name__ == NO_ARGUMENTS:
            print(error, file=sys.stderr)
            return USAGE
        message, status = _told(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return status


def port_hint(code: str) -> str:
    """For a call that the other side does not know: most often it came to the wrong port."""
    if code != "UNIMPLEMENTED":
        return ""
    return (
        f" (the wrong port? a scheduler has one for clients, as {CLIENT_ENDPOINT}, and one for operators, "
        f"as {OPERATIONS_ENDPOINT})"
    )


def _told(error: Exception) -> tuple[str | None, int]:
    if isinstance(error, SettingError | StoreRefused):
        return str(error), USAGE
    if isinstance(error, ServingError):
        return str(error), FAILED
    explain = getattr(error, "format_message", None)  # the argument parser's
    if explain is not None:
        return str(explain()), int(getattr(error, "exit_code", USAGE))
    return _told_by_client(error), FAILED


def _told_by_client(error: Exception) -> str | None:
    from tokentide.errors import TokentideError  # noqa: PLC0415 (grpc)
    from tokentide.resume import OutputDiffers, StreamBroken  # noqa: PLC0415

    if isinstance(error, TokentideError):
        return " ".join(f"{error}{port_hint(error.code)}".split())
    if isinstance(error, StreamBroken):
        return f"the stream broke and could not be resumed: {error}"
    if isinstance(error, OutputDiffers):
        return f"the service contradicts itself: {error}"
    return None
