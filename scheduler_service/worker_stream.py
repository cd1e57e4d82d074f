"""A driver's stream to its worker: silence and breaks become WorkerLost.

Over an injected link and the loop's clock (I12).
"""

import asyncio

from scheduler_service.driver_values import WorkerLink
from shared.errors import WorkerLost
from shared.types import DriverMessage, Hello, Resident, WorkerHeartbeat, WorkerMessage


class WorkerStream:
    def __init__(self, link: WorkerLink, silence_s: float) -> None:
        self._link = link
        self._silence_s = silence_s
        self._sending = asyncio.Lock()  # a stream takes one message at a time

    async def hello(self, replica_id: str) -> Resident:
        """Ask to drive. A long step may run first: the answer comes at its end."""
        await self.send(Hello(replica_id=replica_id))
        while True:
            message = await self.receive()
            if isinstance(message, Resident):
                return message
            if not isinstance(message, WorkerHeartbeat):
                raise WorkerLost(f"no grant: {message}")

    async def send(self, message: DriverMessage) -> None:
        try:
            async with self._sending:
                await self._link.send(message)
        except ConnectionError as error:
            raise WorkerLost(str(error)) from error

    async def receive(self) -> WorkerMessage:
        try:
            async with asyncio.timeout(self._silence_s):
                message = await self._link.receive()
        except TimeoutError as error:
            raise WorkerLost("silent") from error
        if message is None:
            raise WorkerLost("the stream broke")
        return message

    def close(self) -> None:
        self._link.close()
