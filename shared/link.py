"""A two-way stream of values, as session code sees it. grpc, a simulation or a test stands behind it."""

from typing import Protocol, TypeVar

Out = TypeVar("Out", contravariant=True)
In = TypeVar("In", covariant=True)


class Link(Protocol[Out, In]):
    async def send(self, message: Out) -> None:
        """Raises ConnectionError when the other side is gone."""

    async def receive(self) -> In | None:
        """The next message; None when the stream has ended or is broken."""

    def close(self) -> None: ...
