"""What can become of a request: its statuses, and which may follow which.

Knows nothing of who asks for a move: store, driver and doors ask the same table.
"""

from enum import StrEnum


class RequestStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    QUARANTINED = "quarantined"
    DATA_LOSS = "data_loss"


SUSPECT_ATTEMPTS = (
    2  # so many crashes of its worker without a new token: it runs alone until its next
)


class IllegalTransition(ValueError):
    """A status that cannot follow the present one: our mistake, never a client's."""


TRANSITIONS: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.WAITING: frozenset(
        {
            RequestStatus.RUNNING,
            RequestStatus.CANCELLED,
            RequestStatus.EXPIRED,
            RequestStatus.FAILED,  # no live worker has room for it
            RequestStatus.DATA_LOSS,  # a rolled-back log regenerated with other values
        }
    ),
    RequestStatus.RUNNING: frozenset(
        {
            RequestStatus.WAITING,  # preempted, drained, or its worker was lost
            RequestStatus.FINISHED,
            RequestStatus.CANCELLED,
            RequestStatus.EXPIRED,
            RequestStatus.FAILED,
            RequestStatus.QUARANTINED,
            RequestStatus.DATA_LOSS,
        }
    ),
    RequestStatus.FINISHED: frozenset(),
    RequestStatus.CANCELLED: frozenset(),
    RequestStatus.EXPIRED: frozenset(),
    RequestStatus.FAILED: frozenset(),
    RequestStatus.QUARANTINED: frozenset(),
    RequestStatus.DATA_LOSS: frozenset(),
}
TERMINAL = frozenset(status for status, after in TRANSITIONS.items() if not after)


def move(request_id: str, status: RequestStatus, to: RequestStatus) -> RequestStatus:
    """The new status. Raises IllegalTransition."""
    if to not in TRANSITIONS[status]:
        raise IllegalTransition(f"request {request_id}: {status} cannot become {to}")
    return to
