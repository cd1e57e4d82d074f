"""What a worker is and how it stands: description, stats, blocks, memory, timings."""

from shared.pb import worker_pb2 as pb
from shared.types import (
    BlockCounts,
    MemoryStats,
    StepTimings,
    WorkerDescription,
    WorkerStats,
)


def blocks_to_pb(blocks: BlockCounts) -> pb.BlockCounts:
    return pb.BlockCounts(
        total=blocks.total, free=blocks.free, cached=blocks.cached, held=blocks.held
    )


def blocks_from_pb(message: pb.BlockCounts) -> BlockCounts:
    return BlockCounts(
        total=message.total, free=message.free, cached=message.cached, held=message.held
    )


def memory_to_pb(memory: MemoryStats) -> pb.MemoryStats:
    return pb.MemoryStats(
        process_bytes=memory.process_bytes,
        kv_bytes=memory.kv_bytes,
        device_used_bytes=memory.device_used_bytes,
        device_total_bytes=memory.device_total_bytes,
        device_reserved_bytes=memory.device_reserved_bytes,
    )


def memory_from_pb(message: pb.MemoryStats) -> MemoryStats:
    return MemoryStats(
        process_bytes=message.process_bytes,
        kv_bytes=message.kv_bytes,
        device_used_bytes=message.device_used_bytes,
        device_total_bytes=message.device_total_bytes,
        device_reserved_bytes=message.device_reserved_bytes,
    )


def timings_to_pb(timings: StepTimings) -> pb.StepTimings:
    return pb.StepTimings(
        idle_ns=timings.idle_ns,
        prepare_ns=timings.prepare_ns,
        forward_ns=timings.forward_ns,
        sample_ns=timings.sample_ns,
        total_ns=timings.total_ns,
    )


def timings_from_pb(message: pb.StepTimings) -> StepTimings:
    return StepTimings(
        idle_ns=message.idle_ns,
        prepare_ns=message.prepare_ns,
        forward_ns=message.forward_ns,
        sample_ns=message.sample_ns,
        total_ns=message.total_ns,
    )


def description_to_pb(description: WorkerDescription) -> pb.WorkerDescription:
    return pb.WorkerDescription(
        protocol=pb.ProtocolRange(min=description.protocol_min, max=description.protocol_max),
        incarnation=description.incarnation,
        name=description.name,
        model=description.model,
        fingerprint=description.fingerprint,
        dtype=description.dtype,
        device=description.device,
        block_size=description.block_size,
        num_blocks=description.num_blocks,
        max_model_tokens=description.max_model_tokens,
        logits_width=description.logits_width,
        eos_token_ids=description.eos_token_ids,
        max_step_tokens=description.max_step_tokens,
        max_sequences=description.max_sequences,
    )


def description_from_pb(message: pb.WorkerDescription) -> WorkerDescription:
    return WorkerDescription(
        incarnation=message.incarnation,
        name=message.name,
        model=message.model,
        fingerprint=message.fingerprint,
        dtype=message.dtype,
        device=message.device,
        block_size=message.block_size,
        num_blocks=message.num_blocks,
        max_model_tokens=message.max_model_tokens,
        logits_width=message.logits_width,
        eos_token_ids=tuple(message.eos_token_ids),
        max_step_tokens=message.max_step_tokens,
        max_sequences=message.max_sequences,
        protocol_min=message.protocol.min,
        protocol_max=message.protocol.max,
    )


def stats_to_pb(stats: WorkerStats) -> pb.WorkerStats:
    return pb.WorkerStats(
        incarnation=stats.incarnation,
        epoch=stats.epoch,
        driver=stats.driver,
        last_step_id=stats.last_step_id,
        running_step_id=stats.running_step_id,
        running_step_age_ms=stats.running_step_age_ms,
        num_sequences=stats.num_sequences,
        blocks=blocks_to_pb(stats.blocks),
        memory=memory_to_pb(stats.memory),
        num_steps=stats.num_steps,
        num_sampled_tokens=stats.num_sampled_tokens,
    )


def stats_from_pb(message: pb.WorkerStats) -> WorkerStats:
    return WorkerStats(
        incarnation=message.incarnation,
        epoch=message.epoch,
        driver=message.driver,
        last_step_id=message.last_step_id,
        running_step_id=message.running_step_id,
        running_step_age_ms=message.running_step_age_ms,
        num_sequences=message.num_sequences,
        blocks=blocks_from_pb(message.blocks),
        memory=memory_from_pb(message.memory),
        num_steps=message.num_steps,
        num_sampled_tokens=message.num_sampled_tokens,
    )
