"""`generate` and `chat`: text as it is made, on stdout."""

import json
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from tokentide.client import Chunk, Client
from tokentide.commands.endpoints import wait_any_reachable
from tokentide.commands.interrupts import run_until_stopped
from tokentide.commands.late import with_notice
from tokentide.messages import Prompt


def generate(
    prompt: str, *, endpoints: str, raw: bool, as_json: bool, options: dict[str, Any]
) -> int:
    """`-` reads the prompt from stdin. Not `raw`: as a user's message through the chat template."""
    text = sys.stdin.read() if prompt == "-" else prompt
    asked: Prompt = text if raw else [("user", text)]

    async def run() -> int:
        await wait_any_reachable(endpoints)
        async with Client(endpoints) as client, aclosing(_chunks(client, asked, options)) as chunks:
            async for chunk in chunks:
                _write(json.dumps(chunk_as_dict(chunk)) + "\n" if as_json else chunk.text)
        if not as_json:
            _write("\n")
        return 0

    return run_until_stopped(run)


def chat(*, endpoints: str, system: str, options: dict[str, Any]) -> int:
    """One turn after the other, until the end of input."""
    messages: list[tuple[str, str]] = [("system", system)] if system else []
    is_asked = sys.stdin.isatty()
    while True:
        try:
            line = input("> " if is_asked else "").strip()
        except EOFError:
            return 0
        if not line:
            continue
        messages.append(("user", line))
        answer: list[str] = []
        status = run_until_stopped(partial(_turn, endpoints, messages, answer, options))
        if status:
            return status
        messages.append(("assistant", "".join(answer)))


async def _turn(
    endpoints: str, messages: list[tuple[str, str]], answer: list[str], options: dict[str, Any]
) -> int:
    await wait_any_reachable(endpoints)
    async with Client(endpoints) as client, aclosing(_chunks(client, messages, options)) as chunks:
        async for chunk in chunks:
            answer.append(chunk.text)
            _write(chunk.text)
    _write("\n")
    return 0


def _chunks(client: Client, prompt: Prompt, options: dict[str, Any]) -> AsyncGenerator[Chunk, None]:
    return with_notice(client.generate(prompt, **options), _say_late)


def _say_late() -> None:
    print("nothing has come for a while; still waiting: `tokentide top` shows why", file=sys.stderr)


def chunk_as_dict(chunk: Chunk) -> dict[str, Any]:
    """What a program reads, by the names of `GenerateChunk`; fields that say nothing are left out."""
    shown: dict[str, Any] = {
        "request_id": chunk.request_id,
        "start_index": chunk.start_index,
        "token_ids": list(chunk.token_ids),
        "text": chunk.text,
    }
    if chunk.prefix_hash:
        # bytes as protobuf's own JSON has them, so that grpcurl takes them back in a FollowRequest
        shown["prefix_hash"] = b64encode(chunk.prefix_hash).decode()
    if chunk.seed is not None:
        shown |= {"seed": chunk.seed, "num_prompt_tokens": chunk.num_prompt_tokens}
    if chunk.finish is not None:
        usage = chunk.finish.usage
        shown["finish"] = {
            "cause": chunk.finish.reason.value,
            "stop_token_id": chunk.finish.stop_token_id,
            "stop_string": chunk.finish.stop_string,
            "usage": {name: getattr(usage, name) for name in usage.__slots__},
        }
    return shown


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
