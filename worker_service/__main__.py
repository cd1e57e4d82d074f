"""The worker's process: everything is built here."""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from shared.errors import DeviceLost, ModelUnusable, SettingError
from shared.grpc_link import INTERNAL_SERVER_OPTIONS
from shared.pb import worker_pb2_grpc
from shared.serving_process import announce, bind, run_loop, wait_stop_signal
from shared.settings import PRINT_FLAG, fail, split_flag
from shared.telemetry import set_up_logs
from shared.types import WorkerDescription
from worker_service.config import WorkerSettings
from worker_service.engine.facts import ModelFacts
from worker_service.model_files import check_model_files
from worker_service.session import WorkerSession
from worker_service.session_values import Compute, SessionLimits

logger = logging.getLogger("worker")

SERVICE_NAME = "tokentide.v1.Worker"
STOP_GRACE_S = 2.0
EXIT_HUNG = 70
EXIT_DEVICE_LOST = 71


def main(args: Sequence[str] | None = None) -> int:
    only_print, rest = split_flag(sys.argv[1:] if args is None else args, PRINT_FLAG)
    try:
        settings = WorkerSettings.read(rest)
        if only_print:
            print(settings.as_json())
            return 0
        set_up_logs(settings.log_level, settings.log_format, "worker")
        return run_loop(serve(settings))
    except DeviceLost as error:
        # Its requests go on elsewhere; whoever watches the process starts it anew.
        logger.critical("%s", error)
        return EXIT_DEVICE_LOST
    except (SettingError, ModelUnusable) as error:
        return fail(error)


async def serve(settings: WorkerSettings) -> int:
    async with contextlib.AsyncExitStack() as cleanup:
        if settings.model:
            _check_files(Path(settings.model))
        server = grpc.aio.server(options=INTERNAL_SERVER_OPTIONS)
        # Before the model: a taken port fails fast.
        port = bind(server, settings.host, settings.port)
        logger.info("loading %s", settings.simulate or settings.model)
        load = _load_simulated if settings.simulate else _load_engine
        loaded = await load(settings, cleanup)
        from worker_service.servicer import WorkerServicer  # noqa: PLC0415 (slow)

        session = WorkerSession(
            _describe(loaded.facts, settings, port),
            loaded.compute,
            draw_incarnation=_draw_incarnation,
            limits=SessionLimits(silence_s=settings.driver_silence_s, hung_s=settings.hung_s),
        )
        health = health_aio.HealthServicer()
        for name in ("", SERVICE_NAME):
            await health.set(name, health_pb2.HealthCheckResponse.SERVING)
        servicer = WorkerServicer(session, loaded.tokenizer_dir)
        worker_pb2_grpc.add_WorkerServicer_to_server(servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        await server.start()
        announce(settings.announce, {"port": port})
        logger.info("serving %s on %s:%d", loaded.facts.model_name, settings.host, port)
        await _run(session, server, health, settings.drain_s)
    return 0


def _check_files(folder: Path) -> None:
    try:
        check_model_files(folder)
    except PermissionError as error:  # a folder that is closed, or lies in one
        raise ModelUnusable(f"{error.filename}: user {os.getuid()} cannot read it") from error


async def _run(
    session: WorkerSession,
    server: grpc.aio.Server,
    health: health_aio.HealthServicer,
    drain_s: float,
) -> None:
    running = asyncio.create_task(session.run())
    watchdog = asyncio.create_task(_exit_when_hung(session))
    stopping = asyncio.create_task(wait_stop_signal())
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        await health.enter_graceful_shutdown()
        logger.info("draining")
        try:
            async with asyncio.timeout(drain_s):
                await session.drain()
        except TimeoutError:
            logger.warning("nobody took over within %.1f s: others compute again what ran", drain_s)
        else:
            logger.info("drained")
    finally:
        stopping.cancel()
        watchdog.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await server.stop(STOP_GRACE_S)


async def _exit_when_hung(session: WorkerSession) -> None:
    """The compute thread cannot be stopped: the process goes, and whoever watches it starts it anew."""
    reason = await session.wait_hung()
    logger.critical("%s: it is hung, and this worker exits", reason)
    logging.shutdown()
    os._exit(EXIT_HUNG)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    facts: ModelFacts
    compute: Compute
    tokenizer_dir: Path


async def _load_engine(settings: WorkerSettings, cleanup: contextlib.AsyncExitStack) -> _Loaded:
    thread = cleanup.enter_context(ThreadPoolExecutor(1, thread_name_prefix="compute"))
    engine = await asyncio.get_running_loop().run_in_executor(thread, _load, settings)
    engine.touch_cache()
    # Only now: the module behind it imports torch.
    from worker_service.compute import ThreadCompute  # noqa: PLC0415

    return _Loaded(
        facts=engine.facts,
        compute=ThreadCompute(engine, thread),
        tokenizer_dir=Path(settings.model),
    )


async def _load_simulated(settings: WorkerSettings, cleanup: contextlib.AsyncExitStack) -> _Loaded:
    from worker_service.simulated import start  # noqa: PLC0415 (only this kind of worker)
    from worker_service.simulated.compute import SimulatedCompute  # noqa: PLC0415

    start.check_simulated(settings)
    made = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tokentide-tokenizer-"))
    engine, folder = start.load(settings, Path(made))
    return _Loaded(facts=engine.facts, compute=SimulatedCompute(engine), tokenizer_dir=folder)


def _load(settings: WorkerSettings) -> Any:
    # Threads that spin while they wait cost 10 times the step where anything else wants the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from worker_service.engine.engine import Engine  # noqa: PLC0415 (imports torch)
    from worker_service.engine.engine_config import EngineConfig  # noqa: PLC0415

    device = settings.device
    if device == "auto":
        import torch  # noqa: PLC0415

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Engine.load(
        EngineConfig(
            model_dir=Path(settings.model),
            model_name=settings.model_name,
            dtype=settings.dtype,
            device=device,
            block_size=settings.block_size,
            kv_memory_bytes=settings.kv_memory,
            kv_memory_share=settings.kv_memory_share,
            num_blocks=settings.num_blocks,
            prefix_cache=settings.prefix_cache,
            max_sequences=settings.max_sequences,
            max_step_tokens=settings.max_step_tokens,
            num_threads=settings.threads,
            forward=settings.forward,
            kernels=settings.kernels,
            weights=settings.weights,
        )
    )


def _draw_incarnation() -> str:
    return uuid.uuid4().hex


def _describe(facts: ModelFacts, settings: WorkerSettings, port: int) -> WorkerDescription:
    return WorkerDescription(
        incarnation=_draw_incarnation(),
        name=settings.name or f"{settings.host}:{port}",
        model=facts.model_name,
        fingerprint=facts.fingerprint,
        dtype=facts.dtype,
        device=facts.device,
        block_size=facts.block_size,
        num_blocks=facts.num_blocks,
        max_model_tokens=facts.max_model_tokens,
        logits_width=facts.logits_width,
        eos_token_ids=facts.eos_token_ids,
        max_step_tokens=facts.max_step_tokens,
        max_sequences=facts.max_sequences,
    )


if __name__ == "__main__":
    raise SystemExit(main())
