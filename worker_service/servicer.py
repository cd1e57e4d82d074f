"""The Worker service over grpc: from protobuf, call the session, to protobuf. No torch in it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from shared.grpc_link import ServerLink
from shared.pb import worker_pb2 as pb
from shared.pb import worker_pb2_grpc
from shared.wire.plan import driver_message_from_pb
from shared.wire.result import worker_message_to_pb
from shared.wire.stats import description_to_pb, stats_to_pb
from worker_service.model_files import TOKENIZER_FILES
from worker_service.session import WorkerSession

FILE_CHUNK_BYTES = 256 * 1024
DEFAULT_INTERVAL_MS = 500


class WorkerServicer(worker_pb2_grpc.WorkerServicer):
    def __init__(self, session: WorkerSession, model_dir: Path) -> None:
        self._session = session
        self._model_dir = model_dir

    async def Describe(
        self, request: pb.DescribeRequest, context: grpc.aio.ServicerContext
    ) -> pb.WorkerDescription:
        return description_to_pb(self._session.description)

    async def GetTokenizer(
        self, request: pb.GetTokenizerRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.FileChunk]:
        for name in TOKENIZER_FILES:
            path = self._model_dir / name
            if path.is_file():
                data = await asyncio.to_thread(path.read_bytes)
                for chunk in _file_chunks(name, data):
                    yield chunk

    async def Drive(
        self, request_iterator: AsyncIterator[pb.DriverMessage], context: grpc.aio.ServicerContext
    ) -> None:
        link = ServerLink(context, driver_message_from_pb, worker_message_to_pb)
        await self._session.drive(link)

    async def WatchStats(
        self, request: pb.WatchStatsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.WorkerStats]:
        interval_s = (request.interval_ms or DEFAULT_INTERVAL_MS) / 1e3
        while not self._session.is_over:
            yield stats_to_pb(self._session.stats())
            await self._session.wait_stats(max(interval_s, 0.02))


def _file_chunks(name: str, data: bytes) -> list[pb.FileChunk]:
    starts = range(0, max(len(data), 1), FILE_CHUNK_BYTES)
    chunks = [pb.FileChunk(path=name, data=data[at : at + FILE_CHUNK_BYTES]) for at in starts]
    chunks[-1].last = True
    chunks[-1].sha256 = hashlib.sha256(data).digest()
    return chunks
