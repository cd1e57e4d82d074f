"""`health`: one grpc.health.v1 check, for people and probes."""

import json

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tokentide.commands.endpoints import endpoint_names
from tokentide.commands.errors import CommandError


def check_health(*, endpoint: str, service: str, timeout_s: float, as_json: bool) -> int:
    """0 only when the service says SERVING at every endpoint named. Raises CommandError when there is no answer."""
    names = endpoint_names(endpoint)
    are_serving = True
    for name in names:
        status = ask_health(name, service, timeout_s)
        are_serving &= status == "SERVING"
        if as_json:
            print(json.dumps({"endpoint": name, "service": service, "status": status}))
        else:
            print(status if len(names) == 1 else f"{name} {status}")
    return 0 if are_serving else 1


def ask_health(endpoint: str, service: str, timeout_s: float) -> str:
    with grpc.insecure_channel(endpoint) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise CommandError(_reason(error, endpoint, service)) from error
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


def _reason(error: grpc.RpcError, endpoint: str, service: str) -> str:
    code = error.code()
    if code is grpc.StatusCode.NOT_FOUND:
        return f"{endpoint} knows no service {service!r}"
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"no answer from {endpoint}"
    return f"{endpoint}: {code.name}: {' '.join((error.details() or '').split())}"
