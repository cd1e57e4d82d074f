"""`tokentide bench chunk`: a long prompt arrives while others decode, for several chunk sizes and whole prefill.

One stack throughout; the chunk size is switched live. Prompts are fresh each time, and have a cache salt
of their own, so that the prefix cache has none of them.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.strategy import WHOLE_PREFILL, StrategySettings
from tokentide.bench.chunk_run import ChunkTimes, chunk_run
from tokentide.bench.decode_steps import decode_spans
from tokentide.bench.load import Generates
from tokentide.bench.operations_watch import StepSpan
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Progress
from tokentide.bench.strategy_switch import StrategySwitch, strategy_switch
from tokentide.bench.target import Target, TargetSpec, load_average, open_target
from tokentide.bench.trials import TimeLimit, Trial, run_trials
from tokentide.bench.workload import MIN_RANDOM_ID

WHOLE = 0  # no chunking
SHORT_PROMPT = 16
NUM_BEFORE = 24  # tokens of each decode in the time before
MAX_DECODE_TOKENS = 4000  # more than any of them gets
# Guesses, until the first row says better.
PROMPT_TOKENS_PER_S = 700.0
OVERHEAD_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    target: TargetSpec
    sizes: tuple[int, ...]  # WHOLE among them
    num_decodes: int
    num_prompt_tokens: int
    vocabulary: int
    seed: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRun:
    size: int
    repeat: int

    @property
    def key(self) -> str:
        return f"{self.size or 'whole'}#{self.repeat}"


def chunk_trials(options: ChunkOptions) -> list[Trial[SizeRun]]:
    """Each repeat takes the sizes in an order of its own."""
    guess_s = OVERHEAD_S + options.num_prompt_tokens / PROMPT_TOKENS_PER_S
    trials = []
    for repeat in range(options.repeat):
        sizes = list(options.sizes)
        random.Random(f"{options.seed}/order/{repeat}").shuffle(sizes)
        runs = [SizeRun(size=size, repeat=repeat) for size in sizes]
        trials += [Trial(key=run.key, subject=run, expected_s=guess_s) for run in runs]
    return trials


async def run_chunk(
    options: ChunkOptions, rows: Rows, limit: TimeLimit, progress: Progress
) -> None:
    """Adds the rows."""
    async with (
        open_target(options.target, progress.say) as target,
        strategy_switch(target.operations) as switch,
    ):

        async def measure(run: SizeRun) -> Row:
            progress.say(f"chunk size {run.size or 'whole'}, run {run.repeat + 1}")
            await _set_size(switch, options, run.size)
            times = await _measure(target, options, run)
            return {"model": target.model, "repeat": run.repeat, **chunk_run(times)}

        work = run_trials(chunk_trials(options), rows, limit, measure, progress)
        await (target.stack.run(work) if target.stack else work)


async def _set_size(switch: StrategySwitch, options: ChunkOptions, size: int) -> None:
    """The budget leaves room for the chunk and all decodes: the chunk size alone decides."""
    budget = (size or options.num_prompt_tokens) + options.num_decodes
    settings = StrategySettings(
        token_budget=budget,
        chunk_size=size or WHOLE_PREFILL,
        max_sequences=options.num_decodes + 1,
    )
    await switch.set(settings)


async def _measure(target: Target, options: ChunkOptions, run: SizeRun) -> ChunkTimes:
    loop, client, watch = asyncio.get_running_loop(), target.client, target.watch
    source = random.Random(f"{options.seed}/{run.key}")
    long_id, salt = uuid.uuid4().hex, uuid.uuid4().hex

    def prompt(length: int) -> list[int]:
        return [source.randrange(MIN_RANDOM_ID, options.vocabulary) for _ in range(length)]

    load = load_average()
    async with watch.steps(keep_spans=True) as steps:
        await watch.read_settled()
        prompts = [prompt(SHORT_PROMPT) for _ in range(options.num_decodes)]
        max_tokens = min(MAX_DECODE_TOKENS, target.max_request_tokens - SHORT_PROMPT)
        async with _decoding(client, prompts, max_tokens, salt) as decodes:
            await _wait_more(decodes, 1)
            before_s = loop.time()
            await _wait_more(decodes, NUM_BEFORE)
            sent_s = loop.time()
            await _first_token(client, prompt(options.num_prompt_tokens), long_id, salt)
            first_token_s = loop.time()
            await _wait_more(decodes, 1)  # the gaps that were open are over
        await watch.read_settled()
    return ChunkTimes(
        size=run.size,
        streams=[decode.times_s for decode in decodes],
        before_s=before_s,
        sent_s=sent_s,
        first_token_s=first_token_s,
        num_prompt_tokens=options.num_prompt_tokens,
        prompt_steps_s=_steps_with_prompt(steps.spans, long_id),
        decode_steps_s=_pure_decodes(steps.spans, options.num_decodes),
        load_average=load,
    )


def _steps_with_prompt(spans: Sequence[StepSpan], request_id: str) -> list[float]:
    """Own times of the steps that computed a chunk of it."""
    return [
        span.step.timings.total_ns / 1e9
        for span in spans
        if any(s.request_id == request_id and not s.is_decode for s in span.step.scheduled)
    ]


def _pure_decodes(spans: Sequence[StepSpan], num_decodes: int) -> list[float]:
    return [span.step.timings.total_ns / 1e9 for span in decode_spans(spans, num_decodes)]


@dataclass(slots=True)
class _Decode:
    times_s: list[float] = field(default_factory=list)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self, client: Generates, prompt: list[int], max_tokens: int, salt: str) -> None:
        loop = asyncio.get_running_loop()
        chunks: Any = client.generate(
            prompt,
            max_tokens=max_tokens,
            ignore_eos=True,
            temperature=0,
            cache_salt=salt,
        )
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if chunk.token_ids:
                    async with self.came:
                        self.times_s.append(loop.time())
                        self.came.notify_all()

    async def wait_more(self, number: int) -> None:
        target = len(self.times_s) + number
        async with self.came:
            await self.came.wait_for(lambda: len(self.times_s) >= target)


async def _wait_more(decodes: Sequence[_Decode], number: int) -> None:
    await asyncio.gather(*(decode.wait_more(number) for decode in decodes))


@contextlib.asynccontextmanager
async def _decoding(
    client: Generates, prompts: Sequence[list[int]], max_tokens: int, salt: str
) -> AsyncIterator[list[_Decode]]:
    """Streams that go on until the block ends; they are cancelled then."""
    decodes = [_Decode() for _ in prompts]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(decode.read(client, prompt, max_tokens, salt))
            for decode, prompt in zip(decodes, prompts, strict=True)
        ]
        yield decodes
        for task in tasks:
            task.cancel()


async def _first_token(client: Generates, prompt: list[int], request_id: str, salt: str) -> None:
    chunks: Any = client.generate(
        prompt,
        request_id=request_id,
        max_tokens=1,
        ignore_eos=True,
        temperature=0,
        cache_salt=salt,
    )
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            if chunk.token_ids:
                break
