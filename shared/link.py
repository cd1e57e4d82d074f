"""A two-way stream of values, as session code sees it. grpc, a simulation or a test stands behind it."""

from typing import Protocol, TypeVar

Out_contra = TypeVar("Out_contra", contravariant=True)
In_co = TypeVar("In_co", covariant=True)


class Link(Protocol[Out_contra, In_co]):
    async def send(self, message: Out_contra) -> None:
        """Raises ConnectionError when the other side is gone."""

    async def receive(self) -> In_co | None:
        """The next message; None when the stream has ended or is broken."""

    def close(self) -> None: ...
