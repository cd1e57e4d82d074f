"""The settings that all command lines share: plain help that is never cut, no completion to install."""

from typing import Any

import typer


def plain_app(**own: Any) -> typer.Typer:
    """`own`: name, help and the like."""
    return typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **own,
    )
