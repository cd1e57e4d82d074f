"""What a worker brings: the model that a replica serves, and how far its settings reach there."""

import asyncio
import sys
import tempfile
from pathlib import Path

from scheduler_service.config import SchedulerSettings
from scheduler_service.planning.snapshot import Limits
from scheduler_service.serving import ServedModel
from scheduler_service.text import TextCodec, TextPool
from scheduler_service.worker_client import WorkerClient
from shared.types import WorkerDescription


async def fetch_model(
    worker: WorkerClient, description: WorkerDescription, settings: SchedulerSettings
) -> ServedModel:
    """Raises WorkerLost."""
    # Gone again at once: a killed process would leave it behind.
    with tempfile.TemporaryDirectory(prefix="tokentide-tokenizer-") as folder:
        await worker.fetch_tokenizer(Path(folder))
        codec = await asyncio.to_thread(TextCodec.load, Path(folder))
    return ServedModel(
        name=description.model,
        fingerprint=description.fingerprint,
        eos_token_ids=description.eos_token_ids,
        logits_width=description.logits_width,
        codec=codec,
        text=TextPool(
            codec,
            num_threads=settings.text_threads,
            max_pending=settings.max_pending_prompts,
        ),
    )


def limits_of(settings: SchedulerSettings, description: WorkerDescription) -> Limits:
    """The settings, within what this worker takes."""
    return Limits(
        token_budget=min(settings.token_budget, description.max_step_tokens or sys.maxsize),
        max_step_tokens=description.max_step_tokens,
        max_worker_sequences=description.max_sequences,
        max_sequences=min(settings.max_sequences, description.max_sequences or sys.maxsize),
        chunk_size=settings.chunk_size,
        max_bypasses=settings.max_bypasses,
        max_prompt_skips=settings.max_prompt_skips,
        max_partial_prompts=settings.max_partial_prompts,
        watermark=settings.watermark,
    )
