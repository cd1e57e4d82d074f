"""Arguments that several commands share."""

from typing import Annotated, Any

import typer

CLIENT_ENDPOINT = "localhost:50051"
OPERATIONS_ENDPOINT = "localhost:50151"

Endpoints = Annotated[
    str, typer.Option("--endpoint", help="scheduler address; several replicas: a,b,c")
]
Operations = Annotated[
    str, typer.Option("--endpoint", help="operators' port of a scheduler; several replicas: a,b,c")
]
MaxTokens = Annotated[int | None, typer.Option(help="most output tokens")]
MinTokens = Annotated[int, typer.Option(help="no stop before so many")]
Temperature = Annotated[float | None, typer.Option(help="0 = greedy")]
TopK = Annotated[int | None, typer.Option(help="0 = off")]
TopP = Annotated[float | None, typer.Option(help="(0, 1]")]
MinP = Annotated[float | None, typer.Option(help="[0, 1]")]
Seed = Annotated[int | None, typer.Option(help="the same seed, the same output")]
Stop = Annotated[list[str] | None, typer.Option(help="stop string; may be given again")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="the model's end does not stop")]
Priority = Annotated[int, typer.Option(help="lower is served first")]
ModelName = Annotated[str, typer.Option("--model", help="empty = the model that is served")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line")]


def given(**options: Any) -> dict[str, Any]:
    """Those that were given: the rest is the service's to choose."""
    return {name: value for name, value in options.items() if value not in (None, [])}
