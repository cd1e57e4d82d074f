"""`tokentide strategy`: names, arguments, help. What a command does is imported when it runs."""

# ruff: noqa: PLC0415 (--help must be quick: no grpc)
# ruff: noqa: PLR0913 (a command's arguments are its flags)

from typing import Annotated

import typer

from tokentide.commands import flags

strategy_app = typer.Typer(help="How a running pool forms its batches.", no_args_is_help=True)


@strategy_app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="continuous, static or dynamic")],
    *,
    endpoint: flags.Operations = flags.OPERATIONS_ENDPOINT,
    token_budget: Annotated[int | None, typer.Option(help="most tokens in one step")] = None,
    max_sequences: Annotated[int | None, typer.Option(help="most sequences on a worker")] = None,
    chunk_size: Annotated[
        int | None, typer.Option(help="of a prompt in one step; 0 = the budget, -1 = never cut")
    ] = None,
    admission: Annotated[
        str | None, typer.Option(help="continuous: optimistic or guaranteed")
    ] = None,
    refill_delay_ms: Annotated[
        int | None, typer.Option(help="continuous: between two admissions")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="static: default 8")] = None,
    max_wait_ms: Annotated[
        int | None, typer.Option(help="static: then with what is there; 0 = until full")
    ] = None,
    preferred_batch_sizes: Annotated[str | None, typer.Option(help="dynamic: as 4,8")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="dynamic: default 8")] = None,
    max_queue_delay_ms: Annotated[int | None, typer.Option(help="dynamic")] = None,
    preserve_ordering: Annotated[bool | None, typer.Option(help="dynamic")] = None,
    queue_policy: Annotated[
        str | None, typer.Option(help="dynamic: as timeout_action=delay,default_timeout_ms=500")
    ] = None,
    priority_policy: Annotated[
        list[str] | None, typer.Option(help="dynamic: as 1:max_queue_size=10; may be given again")
    ] = None,
    release: Annotated[
        str | None, typer.Option(help="static, dynamic: answers leave at batch_end, or stream")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Switch the pool, live. Batches that run end by the rules they began with."""
    from tokentide.commands.strategy import set_strategy

    options = flags.given(
        token_budget=token_budget,
        max_sequences=max_sequences,
        chunk_size=chunk_size,
        admission=admission,
        refill_delay_ms=refill_delay_ms,
        batch_size=batch_size,
        max_wait_ms=max_wait_ms,
        preferred_batch_sizes=preferred_batch_sizes,
        max_batch_size=max_batch_size,
        max_queue_delay_ms=max_queue_delay_ms,
        preserve_ordering=preserve_ordering,
        default_queue_policy=queue_policy,
        priority_queue_policy=priority_policy,
        release=release,
    )
    raise typer.Exit(set_strategy(name, endpoints=endpoint, as_json=as_json, options=options))


@strategy_app.command()
def show(
    endpoint: flags.Operations = flags.OPERATIONS_ENDPOINT, as_json: flags.AsJson = False
) -> None:
    """The one in force."""
    from tokentide.commands.strategy import show_strategy

    raise typer.Exit(show_strategy(endpoints=endpoint, as_json=as_json))


@strategy_app.command()
def clear(
    endpoint: flags.Operations = flags.OPERATIONS_ENDPOINT, as_json: flags.AsJson = False
) -> None:
    """Back to what the replicas' own settings say."""
    from tokentide.commands.strategy import clear_strategy

    raise typer.Exit(clear_strategy(endpoints=endpoint, as_json=as_json))
