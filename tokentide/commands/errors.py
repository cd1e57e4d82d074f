"""What a user did wrong, or the world, as one line on stderr. Tracebacks are for our own mistakes."""

import sys
from collections.abc import Callable

from shared.errors import ServingError, SettingError, StoreRefused

USAGE = 2  # as command lines have it
FAILED = 1


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
        message, status = _told(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return status


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
        return " ".join(str(error).split())
    if isinstance(error, StreamBroken):
        return f"the stream broke and could not be resumed: {error}"
    if isinstance(error, OutputDiffers):
        return f"the service contradicts itself: {error}"
    return None
