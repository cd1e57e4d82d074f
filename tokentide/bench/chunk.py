"""`tokentide bench chunk`: a long prompt arrives while others decode, for several chunk sizes and whole prefill.

One worker throughout; between sizes only the scheduler is started anew. Prompts are fresh each time, so
that the prefix cache has none of them.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokentide.bench.chunk_report import chunk_report
from tokentide.bench.flags import numbers
from tokentide.bench.load import Generates
from tokentide.bench.operations_watch import OperationsWatch
from tokentide.bench.serve import Progress
from tokentide.bench.serve_options import TargetFlags, target_spec
from tokentide.bench.target import load_average, machine_facts, model_folder, vocabulary_of
from tokentide.bench.workload import DEFAULT_VOCABULARY, MIN_RANDOM_ID
from tokentide.client import Client
from tokentide.local_stack import LocalStack, StackSpec, local_stack

WHOLE = 0  # the scheduler's word for no chunking
SHORT_PROMPT = 16
NUM_BEFORE = 24  # tokens of each decode in the time before
MAX_DECODE_TOKENS = 4000  # more than any of them gets


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    stack: StackSpec
    sizes: tuple[int, ...]
    num_decodes: int
    num_prompt_tokens: int
    vocabulary: int
    seed: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Times are of one clock. A stream is the times at which one decode's tokens came."""

    size: int
    streams: Sequence[Sequence[float]]
    before_s: float  # when the last decode had begun
    sent_s: float  # the long prompt
    first_token_s: float  # its
    load_average: Sequence[float] = ()


def chunk_options(
    target: TargetFlags,
    *,
    sizes: str,
    num_decodes: int,
    num_prompt_tokens: int,
    seed: int,
    repeat: int,
) -> ChunkOptions:
    """Raises ValueError, ModelUnusable."""
    spec = target_spec(target)
    folder = model_folder(spec, lambda _: None)
    return ChunkOptions(
        stack=StackSpec(
            model_dir=folder, worker_args=spec.worker_args, scheduler_args=spec.scheduler_args
        ),
        sizes=(*sorted(numbers(sizes)), WHOLE),
        num_decodes=num_decodes,
        num_prompt_tokens=num_prompt_tokens,
        vocabulary=vocabulary_of(folder) or DEFAULT_VOCABULARY,
        seed=seed,
        repeat=repeat,
    )


async def run_chunk(
    options: ChunkOptions, progress: Progress, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Each repeat takes the sizes in an order of its own. `keep` is told of the report after each trial."""
    source = random.Random(options.seed)
    trials: list[Trial] = []
    report: dict[str, Any] = {}
    async with local_stack(options.stack, progress.say) as stack:
        for repeat in range(options.repeat):
            sizes = list(options.sizes)
            source.shuffle(sizes)
            for size in sizes:
                await _restart_scheduler(stack, options, size)
                progress.say(f"chunk size {size or 'whole'}, run {repeat + 1} of {options.repeat}")
                trials.append(await stack.run(_trial(stack, options, size, source)))
                report = chunk_report(_facts(options), trials)
                keep(report)
    return report


def _facts(options: ChunkOptions) -> dict[str, Any]:
    return {
        "machine": machine_facts(),
        "model": options.stack.model_dir.name,
        "num_decodes": options.num_decodes,
        "num_prompt_tokens": options.num_prompt_tokens,
        "repeat": options.repeat,
        "seed": options.seed,
    }


async def _restart_scheduler(stack: LocalStack, options: ChunkOptions, size: int) -> None:
    """The budget leaves room for the chunk and all decodes: the chunk size alone decides."""
    await asyncio.gather(*(scheduler.stop() for scheduler in stack.schedulers))
    stack.schedulers.clear()
    budget = (size or options.num_prompt_tokens) + options.num_decodes
    flags = ("--chunk-size", str(size), "--token-budget", str(budget))
    args = (*options.stack.scheduler_args, *flags)
    stack.spec = replace(stack.spec, scheduler_args=args)
    await stack.start_schedulers()


async def _trial(
    stack: LocalStack, options: ChunkOptions, size: int, source: random.Random
) -> Trial:
    loop = asyncio.get_running_loop()

    def prompt(length: int) -> list[int]:
        return [source.randrange(MIN_RANDOM_ID, options.vocabulary) for _ in range(length)]

    load = load_average()
    async with (
        Client(stack.endpoints) as client,
        OperationsWatch(stack.operations_endpoints) as watch,
    ):
        await watch.wait_serving(60)
        prompts = [prompt(SHORT_PROMPT) for _ in range(options.num_decodes)]
        async with _decoding(client, prompts) as decodes:
            await _wait_more(decodes, 1)
            before_s = loop.time()
            await _wait_more(decodes, NUM_BEFORE)
            sent_s = loop.time()
            await _first_token(client, prompt(options.num_prompt_tokens))
            first_token_s = loop.time()
            await _wait_more(decodes, 1)  # the gaps that were open are over
        await watch.read_settled()
    return Trial(
        size=size,
        streams=[decode.times_s for decode in decodes],
        before_s=before_s,
        sent_s=sent_s,
        first_token_s=first_token_s,
        load_average=load,
    )


@dataclass(slots=True)
class _Decode:
    times_s: list[float] = field(default_factory=list)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self, client: Generates, prompt: list[int]) -> None:
        loop = asyncio.get_running_loop()
        chunks: Any = client.generate(
            prompt, max_tokens=MAX_DECODE_TOKENS, ignore_eos=True, temperature=0
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
    client: Generates, prompts: Sequence[list[int]]
) -> AsyncIterator[list[_Decode]]:
    """Streams that go on until the block ends; they are cancelled then."""
    decodes = [_Decode() for _ in prompts]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(decode.read(client, prompt))
            for decode, prompt in zip(decodes, prompts, strict=True)
        ]
        yield decodes
        for task in tasks:
            task.cancel()


async def _first_token(client: Generates, prompt: list[int]) -> None:
    chunks: Any = client.generate(prompt, max_tokens=1, ignore_eos=True, temperature=0)
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            if chunk.token_ids:
                break
