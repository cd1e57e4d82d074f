"""`tokentide quarantine`: names, arguments, help. What a command does is imported when it runs."""

# ruff: noqa: PLC0415 (--help must be quick: no grpc)

from typing import Annotated

import typer

from tokentide.commands import flags

quarantine_app = typer.Typer(
    help="Requests that crashed their workers again and again.", no_args_is_help=True
)


@quarantine_app.command("list")
def list_(
    *, endpoint: flags.Operations = flags.OPERATIONS_ENDPOINT, as_json: flags.AsJson = False
) -> None:
    """The newest first."""
    from tokentide.commands.quarantine import list_quarantined

    raise typer.Exit(list_quarantined(endpoint, as_json))


@quarantine_app.command()
def release(
    request_ids: Annotated[list[str], typer.Argument(help="ids; they may be submitted anew")],
    *,
    endpoint: flags.Operations = flags.OPERATIONS_ENDPOINT,
) -> None:
    """Forget requests, so that their ids may be submitted anew."""
    from tokentide.commands.quarantine import release_quarantined

    raise typer.Exit(release_quarantined(request_ids, endpoint))
