"""What a client may catch. Statuses become exceptions here, and nowhere else."""

from dataclasses import dataclass

import grpc
from google.rpc import error_details_pb2, status_pb2

RETRYABLE = frozenset({grpc.StatusCode.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class FieldViolation:
    field: str
    description: str


class TokentideError(Exception):
    """The service answered with a status. `code` is its gRPC name."""

    def __init__(
        self, code: str, message: str, violations: tuple[FieldViolation, ...] = ()
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.violations = violations


def error_of(error: grpc.aio.AioRpcError) -> TokentideError:
    return TokentideError(error.code().name, error.details() or "", _violations(error))


def is_retryable(error: grpc.aio.AioRpcError) -> bool:
    # A server that ends cuts its last calls so; a request that was cancelled is named in the status.
    is_cut = error.code() is grpc.StatusCode.CANCELLED and error.details() == "CANCELLED"
    return is_cut or error.code() in RETRYABLE


def _violations(error: grpc.aio.AioRpcError) -> tuple[FieldViolation, ...]:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                bad = error_details_pb2.BadRequest()
                if detail.Unpack(bad):
                    return tuple(
                        FieldViolation(v.field, v.description) for v in bad.field_violations
                    )
    return ()
