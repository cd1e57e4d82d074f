"""A client of llama-server's /completion: one connection a request, tokens as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from shared.errors import ServingError
from tokentide.resume import Chunk

DATA = b"data: "


class LlamaFailed(ServingError):
    """llama-server refused a request or broke off."""


class LlamaClient:
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def generate(self, prompt: Any, **options: Any) -> AsyncIterator[Chunk]:
        """Counts tokens by the server's own counter: events without whole characters are held back."""
        body = {
            "prompt": list(prompt),
            "n_predict": options["max_tokens"],
            "ignore_eos": True,
            "temperature": 0.0,
            "samplers": ["temperature"],
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,
            "cache_prompt": True,
        }
        reader, writer = await asyncio.open_connection(self._host, self._port)
        num_tokens = 0
        try:
            writer.write(_request("/completion", json.dumps(body).encode()))
            async for event in _events(reader):
                message = json.loads(event)
                if "error" in message:
                    raise LlamaFailed(str(message["error"]))
                counted = message.get("timings", {}).get("predicted_n") or message.get(
                    "tokens_predicted", num_tokens
                )
                if counted > num_tokens:
                    token_ids = _padded(message.get("tokens", []), counted - num_tokens)
                    yield Chunk(
                        request_id=options["request_id"],
                        start_index=num_tokens,
                        token_ids=token_ids,
                    )
                    num_tokens = counted
        finally:
            writer.close()

    async def is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return False
        writer.write(f"GET /health HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        status = await reader.readline()
        writer.close()
        return b" 200 " in status


def _request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    status = await reader.readline()
    while (await reader.readline()).strip():
        pass  # headers
    if b" 200 " not in status:
        raise LlamaFailed(f"{status.decode().strip()}: {(await reader.read()).decode()[:200]}")
    rest = b""
    while size := int((await reader.readline()).strip() or b"0", 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.startswith(DATA) and line != DATA + b"[DONE]":
                yield line.removeprefix(DATA)


def _padded(token_ids: list[int], number: int) -> tuple[int, ...]:
    """`number` tokens: those whose ids the server held back are -1."""
    missing = max(0, number - len(token_ids))
    return (*([-1] * missing), *token_ids[-number:])
