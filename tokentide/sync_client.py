"""`SyncClient`: the same client for code without asyncio, on an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, Self, TypeVar

from tokentide.client import Chunk, Client, Model, RequestState
from tokentide.messages import Prompt

Result = TypeVar("Result")


class SyncClient:
    """`with SyncClient("localhost:50051") as client: for chunk in client.generate("Hello"): ...`"""

    def __init__(self, endpoints: str | Sequence[str] = "localhost:50051", **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = self._run(_make_client(endpoints, options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def generate(self, prompt: Prompt, **options: Any) -> Iterator[Chunk]:
        return self._iterate(self._client.generate(prompt, **options))

    def follow(self, request_id: str, start: int = 0, prefix_hash: bytes = b"") -> Iterator[Chunk]:
        return self._iterate(self._client.follow(request_id, start, prefix_hash))

    def submit(self, prompt: Prompt, **options: Any) -> str:
        return self._run(self._client.submit(prompt, **options))

    def cancel(self, *request_ids: str) -> None:
        self._run(self._client.cancel(*request_ids))

    def get(self, request_id: str) -> RequestState:
        return self._run(self._client.get(request_id))

    def models(self) -> list[Model]:
        return self._run(self._client.models())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _iterate(self, chunks: AsyncIterator[Chunk]) -> Iterator[Chunk]:
        try:
            while True:
                chunk = self._run(_next(chunks))
                if chunk is None:
                    return
                yield chunk
        finally:
            self._run(_close(chunks))


async def _make_client(endpoints: str | Sequence[str], options: dict[str, Any]) -> Client:
    return Client(endpoints, **options)


async def _next(chunks: AsyncIterator[Chunk]) -> Chunk | None:
    return await anext(chunks, None)


async def _close(chunks: Any) -> None:
    await chunks.aclose()
