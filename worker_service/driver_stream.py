"""One driver's stream as the worker's session sees it: what it is called, when it was last heard,
what waits to be sent to it. Over an injected link (I12)."""

import asyncio
import contextlib

from shared.errors import MalformedMessage
from shared.link import Link
from shared.types import PROTOCOL_MAX, PROTOCOL_MIN, DriverMessage, Fenced, Hello, WorkerMessage

DriverLink = Link[WorkerMessage, DriverMessage]


class DriverStream:
    def __init__(self, link: DriverLink, replica_id: str, now_s: float, max_outgoing: int) -> None:
        self.link = link
        self.replica_id = replica_id
        self.heard_s = now_s
        # One place more than may be used: the end always fits.
        self._outgoing: asyncio.Queue[WorkerMessage | None] = asyncio.Queue(max_outgoing + 1)
        self._max_outgoing = max_outgoing
        self.is_broken = False

    def post(self, message: WorkerMessage) -> None:
        """Send when the stream takes it. A driver that takes nothing is as good as gone."""
        if self._outgoing.qsize() < self._max_outgoing:
            self._outgoing.put_nowait(message)
        else:
            self.is_broken = True
            self.link.close()

    def post_end(self) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._outgoing.put_nowait(None)

    async def send_posted(self) -> None:
        """Until the end is posted or the stream breaks."""
        try:
            while (message := await self._outgoing.get()) is not None:
                await self.link.send(message)
        except ConnectionError:
            self.is_broken = True


async def read_hello(link: DriverLink) -> Hello | Fenced:
    """The first message, or what to answer instead of going on."""
    try:
        hello = await link.receive()
    except MalformedMessage:
        hello = None
    if not isinstance(hello, Hello):
        return Fenced(reason="no_hello")
    if hello.protocol_max < PROTOCOL_MIN or hello.protocol_min > PROTOCOL_MAX:
        return Fenced(reason="protocol")
    return hello


async def say_last(link: DriverLink, message: WorkerMessage) -> None:
    with contextlib.suppress(ConnectionError):
        await link.send(message)
