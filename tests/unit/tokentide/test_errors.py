"""Which statuses are worth another try."""

import grpc
import pytest

from tokentide.errors import is_retryable


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, "draining", True),
        (grpc.StatusCode.CANCELLED, "CANCELLED", True),  # grpc's own: its server is ending
        (grpc.StatusCode.CANCELLED, "request r was cancelled", False),
        (grpc.StatusCode.NOT_FOUND, "no request", False),
    ],
)
def test_a_call_that_was_cut_is_tried_again_and_a_cancelled_request_is_not(code, details, expected):
    metadata = grpc.aio.Metadata()

    assert is_retryable(grpc.aio.AioRpcError(code, metadata, metadata, details)) is expected
