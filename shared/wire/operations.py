"""Operations: sums and step records to messages."""

from shared.pb import operations_pb2 as pb
from shared.types import WorkerStats
from shared.wire.stats import stats_to_pb


def worker_load_to_pb(
    stats: WorkerStats, *, address: str, name: str, driven_here: bool
) -> pb.WorkerLoad:
    return pb.WorkerLoad(
        stats=stats_to_pb(stats), address=address, name=name, driven_here=driven_here
    )
