"""A stack of containers as our compose files describe it, and what is done to its containers."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
from compose_engine import Engine
from grpc_health.v1 import health_pb2, health_pb2_grpc

HEALTHY_S = 420.0  # a crowded machine is no fault of theirs
COMPOSE_S = 600.0
KINDS = ("scheduler", "worker", "valkey")


@dataclass(frozen=True, slots=True)
class Container:
    """As it was when it was asked."""

    name: str
    pid: int
    status: str
    health: str
    exit_code: int
    started_at: str
    ports: tuple[int, ...]


class Stack:
    """`deploy`: the folder with the compose files; `files`: those in force; `variables`: as for .env."""

    def __init__(
        self, engine: Engine, deploy: Path, files: Sequence[str], variables: dict[str, str]
    ) -> None:
        self.engine = engine
        self.deploy = deploy
        self._environment = {"COMPOSE_FILE": ":".join(files), **variables}

    def compose(self, *args: str) -> str:
        return self._call(("docker-compose", *args))

    def shell(self, line: str) -> str:
        """A line as a user types it, beside the compose files."""
        return self._call(("sh", "-c", line))

    def _call(self, command: Sequence[str]) -> str:
        return self.engine.call(
            command, timeout_s=COMPOSE_S, cwd=str(self.deploy), env=self._environment
        )

    def containers(self, service: str) -> list[Container]:
        ids = self.compose("ps", "--quiet", service).split()
        if not ids:
            return []
        found = json.loads(self.engine.docker("inspect", *ids))
        return sorted((_container(one) for one in found), key=lambda container: container.name)

    def container(self, name: str) -> Container:
        return _container(json.loads(self.engine.docker("inspect", name))[0])

    def kill(self, container: Container) -> None:
        """As a crash does: the kernel ends its first process. Docker's own kill is a wish, after which it does
        not start again."""
        os.kill(container.pid, signal.SIGKILL)

    def wait_healthy(self, *services: str, since_s: float | None = None) -> float:
        """Until all containers are; seconds since then."""
        started_s = time.monotonic() if since_s is None else since_s
        while True:
            states = [c.health for service in services for c in self.containers(service)]
            if states and set(states) == {"healthy"}:
                return time.monotonic() - started_s
            if time.monotonic() - started_s > HEALTHY_S:
                raise TimeoutError(f"{services} are {states} after {HEALTHY_S:g} s")
            time.sleep(0.5)

    def logs(self) -> str:
        with suppress(subprocess.CalledProcessError):
            return self.compose("logs", "--no-color", "--tail=60")
        return ""


def _container(found: dict[str, Any]) -> Container:
    state = found["State"]
    bound = (found["NetworkSettings"]["Ports"] or {}).values()
    return Container(
        name=found["Name"].lstrip("/"),
        pid=state["Pid"],
        status=state["Status"],
        health=state.get("Health", {}).get("Status", "none"),
        exit_code=state["ExitCode"],
        started_at=state["StartedAt"],
        ports=tuple(int(port["HostPort"]) for ports in bound for port in ports or ()),
    )


def wait_serving(container: Container, port: int, limit_s: float = 60.0) -> float:
    """Seconds from a container's start until its own health service says SERVING, asked every 20 ms."""
    began = datetime.fromisoformat(container.started_at.split(".")[0] + "+00:00").timestamp()
    fraction = float("0." + container.started_at.split(".")[1].rstrip("Z"))
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, suppress(grpc.RpcError):
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=1
            )
            if reply.status == health_pb2.HealthCheckResponse.SERVING:
                return time.time() - began - fraction
        time.sleep(0.02)
    raise TimeoutError(f"{container.name} does not serve after {limit_s:g} s")
