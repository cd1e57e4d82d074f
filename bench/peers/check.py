"""Does each system answer? One short question, greedy; nothing is measured."""

import asyncio
import uuid
from typing import Any

from tokenizers import Tokenizer

from bench.peers.driver import Options, Outcome, prepare
from bench.peers.measure import Running
from bench.peers.system import System
from bench.peers.workloads import BY_NAME
from tokentide.bench.serve import Progress

QUESTION = "What is the capital of France?"
NUM_TOKENS = 8
CHECK_S = 600.0


async def check(options: Options, progress: Progress) -> dict[str, Any]:
    outcome = Outcome(rows={})
    systems = await prepare(options, outcome, progress.say)
    tokenizer = Tokenizer.from_file(str(options.model_dir / "tokenizer.json"))
    prompt = tokenizer.encode(
        f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    ).ids
    answers: dict[str, Any] = {name: {"error": why} for name, why in outcome.unavailable.items()}
    for system in systems:
        progress.say(f"asking {system.name}")
        try:
            answers[system.name] = await _ask(system, options, prompt, tokenizer)
        except Exception as error:
            answers[system.name] = {"error": f"{type(error).__name__}: {error}"}
    return answers


def text_of(answers: dict[str, Any]) -> str:
    return "\n".join(
        f"{name}: {answer.get('error') or repr(answer['text'])} {answer.get('facts', '')}"
        for name, answer in answers.items()
    )


async def _ask(
    system: System, options: Options, prompt: list[int], tokenizer: Any
) -> dict[str, Any]:
    running = Running(options.log_dir)
    workload = BY_NAME["one"]
    launch = system.launch(
        workload, options.step_tokens.get(system.name, system.default_step_tokens)
    )
    token_ids: list[int] = []
    try:
        async with asyncio.timeout(CHECK_S):
            opened, _ = await running.open(system, launch)
            async for chunk in opened.client.generate(
                prompt,
                request_id=uuid.uuid4().hex,
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                temperature=0.0,
                seed=0,
            ):
                token_ids += chunk.token_ids
    finally:
        await running.close_all()
    known = [token for token in token_ids if token >= 0]
    text = tokenizer.decode(known, skip_special_tokens=False)
    return {"token_ids": token_ids, "text": text, "facts": dict(opened.facts)}
