"""What both services' processes do alike: bind ports, announce them, stop at a signal, run the loop."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc

from shared.errors import SettingError

_PR_SET_PDEATHSIG = 1


DIE_WITH_PARENT = "TOKENTIDE_DIE_WITH_PARENT"


def bind(server: grpc.aio.Server, host: str, port: int) -> int:
    """The port in use. Raises SettingError when it is taken."""
    try:
        _try_to_bind(host, port)
        bound = server.add_insecure_port(f"{host}:{port}")
    except (OSError, RuntimeError) as error:
        raise SettingError(f"port {port} on {host} is in use or not ours to bind") from error
    if bound == 0:
        raise SettingError(f"port {port} on {host} is in use or not ours to bind")
    return int(bound)


def _try_to_bind(host: str, port: int) -> None:
    """grpc would fail too, but with lines of its own on stderr."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def announce(path: str, ports: dict[str, int]) -> None:
    """Tell the launcher, atomically, that we serve and where."""
    if path:
        staging = Path(f"{path}.{os.getpid()}")
        staging.write_text(json.dumps({**ports, "pid": os.getpid()}))
        staging.rename(path)


async def wait_stop_signal() -> None:
    """Returns at the first SIGTERM or SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await stop.wait()


def die_with_parent() -> None:
    """A child of a local stack ends when its launcher dies without a word (Linux).

    The variable names the launcher: one that has died already is nobody's parent any more.
    """
    launcher = os.environ.get(DIE_WITH_PARENT, "")
    if launcher and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if str(os.getppid()) != launcher:
            raise SystemExit(0)


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed."""
    die_with_parent()
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 (optional)

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
