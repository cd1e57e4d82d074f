"""The exceptions a caller may want to catch, and in one table, `GRPC_STATUS`, their gRPC statuses.

Knows nothing of grpc: statuses are named by their names.
"""

from dataclasses import dataclass


class ServingError(Exception):
    """Base of all errors that belong to the world, not to us."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    field: str
    description: str


class MalformedMessage(ServingError):
    """A message its sender cannot have meant: unequal columns, an unspecified enum."""


class InvalidRequest(ServingError):
    """The request can never be served as it stands."""

    def __init__(self, *violations: FieldViolation) -> None:
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))
        self.violations = violations


class ModelNotFound(ServingError):
    """No such model in this pool."""


class RequestNotFound(ServingError):
    """No request of this id: never submitted, or its record has lapsed."""


class RequestConflict(ServingError):
    """The request id is taken by a request with other fields."""


class QueueFull(ServingError):
    """The queue has its cap of requests or of tokens."""


class RequestUnfit(ServingError):
    """No worker that is there can ever run this request."""


class RequestCancelled(ServingError):
    """Cancelled, by its client or for want of a reader."""


class RequestExpired(ServingError):
    """Its deadline passed before it finished."""


class RequestFailed(ServingError):
    """It ended by a fault of ours or of the worker's."""


class RequestQuarantined(ServingError):
    """It crashed its worker three times while it ran alone."""


class DataLoss(ServingError):
    """Tokens that were delivered are not, or not so, in the log."""


class IndexBeyondLog(ServingError):
    """The start index lies behind the visible end of a request that has ended."""


class NoWorker(ServingError):
    """No worker is known yet, so nothing can be checked or served."""


class Draining(ServingError):
    """This replica takes no more requests."""


class StoreUnavailable(ServingError):
    """The store did not answer. What was asked of it may or may not have happened."""


class StoreRefused(ServingError):
    """The store is not one we can use: too old, wrong durability, another model's pool."""


class StaleFence(ServingError):
    """(incarnation, epoch) is not current in the store: somebody else drives this worker."""


class StoreRolledBack(ServingError):
    """The store's marker or write counter went back: it lost writes."""


class WorkerLost(ServingError):
    """The worker did not answer in time, or the connection broke. The step may have run."""


class WorkerGone(WorkerLost):
    """Nobody listens at the worker's address."""


class WorkerFenced(ServingError):
    """The worker does not let this replica drive it (any more)."""

    def __init__(self, reason: str, driver: str = "") -> None:
        super().__init__(f"{reason}{f' (driven by {driver})' if driver else ''}")
        self.reason = reason
        self.driver = driver


class DeviceLost(ServingError):
    """The worker's device computes nothing any more: the process has to go."""


class ModelUnusable(ServingError):
    """The model folder is missing, incomplete, or of a kind the engine cannot run."""


class SettingError(ServingError):
    """A setting cannot be used as it stands; the message is one clear line."""


# The one place that maps errors to gRPC statuses, by the status's name.
GRPC_STATUS: dict[type[ServingError], str] = {
    MalformedMessage: "INVALID_ARGUMENT",
    InvalidRequest: "INVALID_ARGUMENT",
    ModelNotFound: "NOT_FOUND",
    RequestNotFound: "NOT_FOUND",
    RequestConflict: "ALREADY_EXISTS",
    QueueFull: "RESOURCE_EXHAUSTED",
    RequestUnfit: "FAILED_PRECONDITION",
    RequestCancelled: "CANCELLED",
    RequestExpired: "DEADLINE_EXCEEDED",
    RequestFailed: "INTERNAL",
    RequestQuarantined: "FAILED_PRECONDITION",
    DataLoss: "DATA_LOSS",
    IndexBeyondLog: "OUT_OF_RANGE",
    NoWorker: "UNAVAILABLE",
    Draining: "UNAVAILABLE",
    StoreUnavailable: "UNAVAILABLE",
    StoreRefused: "FAILED_PRECONDITION",
    StaleFence: "ABORTED",
    StoreRolledBack: "DATA_LOSS",
    WorkerLost: "UNAVAILABLE",
    WorkerGone: "UNAVAILABLE",
    WorkerFenced: "ABORTED",
}
