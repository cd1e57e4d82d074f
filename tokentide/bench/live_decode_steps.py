"""Pure decode steps of a live stack: so many long answers at once, until enough steps have been seen."""

import asyncio
import contextlib
import random
import uuid
from typing import Any

from shared.strategy import StrategySettings
from tokentide.bench.decode_steps import NUM_SETTLING, DecodeSteps, decode_spans, settled_ms
from tokentide.bench.operations_watch import Steps
from tokentide.bench.strategy_switch import StrategySwitch
from tokentide.bench.target import Target
from tokentide.bench.workload import MIN_RANDOM_ID

TOKEN_BUDGET = 512  # in a step while prompts are computed
MARGIN_TOKENS = 64  # an answer must not end while steps are still counted


class LiveDecodeSteps:
    """A `StepSource`. The pool must have one worker: a batch is a worker's."""

    def __init__(self, target: Target, vocabulary: int, seed: int) -> None:
        self._target = target
        self._vocabulary = vocabulary
        self._random = random.Random(seed)

    @property
    def model(self) -> str:
        return self._target.model

    async def prepare(self, switch: StrategySwitch, max_batch_size: int) -> None:
        """Raises ValueError with one line."""
        reading = await self._target.watch.read()
        if reading.num_workers != 1:
            raise ValueError(f"a pool of one worker is needed, this one has {reading.num_workers}")
        budget = max(TOKEN_BUDGET, max_batch_size)
        await switch.set(StrategySettings(token_budget=budget, max_sequences=max_batch_size))

    async def measure(self, batch_size: int, context: int, num_steps: int) -> DecodeSteps:
        """No step at all if the cache is too small for the batch."""
        wanted = num_steps + NUM_SETTLING
        prompt_length = max(1, context - wanted // 2)  # the mean over the steps is the context
        prefill_steps = batch_size * prompt_length // TOKEN_BUDGET + 1
        max_tokens = wanted + 2 * prefill_steps + MARGIN_TOKENS
        async with self._target.watch.steps(keep_spans=True) as steps:
            await self._target.watch.read_settled()  # the watch is open, and nobody else runs
            readers = [
                asyncio.create_task(
                    self._read(prompt_length, max_tokens, batch_size, steps, wanted)
                )
                for _ in range(batch_size)
            ]
            await _first_ends_all(readers)
        spans = decode_spans(steps.spans, batch_size)[:wanted]
        return DecodeSteps(batch_size=batch_size, context=context, steps_ms=settled_ms(spans))

    async def _read(
        self, prompt_length: int, max_tokens: int, batch_size: int, steps: Steps, wanted: int
    ) -> None:
        """Until enough steps have been seen, or to its end."""
        prompt = [
            self._random.randrange(MIN_RANDOM_ID, self._vocabulary) for _ in range(prompt_length)
        ]
        chunks: Any = self._target.client.generate(
            prompt,
            max_tokens=max_tokens,
            ignore_eos=True,
            temperature=0,
            cache_salt=uuid.uuid4().hex,  # nothing may be found in the prefix cache
        )
        async with contextlib.aclosing(chunks):
            async for _ in chunks:
                if len(decode_spans(steps.spans, batch_size)) >= wanted:
                    return


async def _first_ends_all(tasks: list[asyncio.Task[None]]) -> None:
    """Once one has seen enough or failed, the others need not go on."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
