"""A Docker engine of the test's own: its data, socket and pid file in one folder, ended by its pid.

What it has built stays in the folder, for the next run.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_S = 60.0
STOP_S = 60.0
# Debian's client builds without plugins; another one on the PATH may not.
BINARIES = "/usr/bin:/usr/sbin:/bin:/sbin"
NO_RULES = (
    b"*filter\nCOMMIT\n*nat\nCOMMIT\n"  # what is not saved, because it was empty, is emptied again
)
BRIDGE = Path("/sys/class/net/docker0")
TOOLS = (
    *("dockerd", "containerd", "runc", "docker", "docker-compose"),
    *("debootstrap", "iptables", "iptables-save", "ip"),
)


class NoEngine(Exception):
    """No Docker engine can run here. The message says why, in one line."""


class Engine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.log = folder / "dockerd.log"

    @property
    def environment(self) -> dict[str, str]:
        """For docker and docker-compose: this engine, its own settings, plain progress."""
        return {
            "PATH": f"{self.folder / 'bin'}:{BINARIES}",
            "HOME": str(self.folder / "home"),
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
            "COMPOSE_HTTP_TIMEOUT": "300",
            "LANG": "C.UTF-8",
        }

    def docker(self, *args: str, timeout_s: float = 120.0) -> str:
        """What it prints. Raises CalledProcessError, with what it wrote on stderr in the message's notes."""
        return self.call(("docker", *args), timeout_s=timeout_s)

    def call(self, command: Sequence[str], *, timeout_s: float, **options: object) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**self.environment, **options.pop("env", {})},  # type: ignore[dict-item]
            **options,  # type: ignore[call-overload]
        )
        if done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, command)
            error.add_note((done.stdout + done.stderr)[-4000:])
            raise error
        return str(done.stdout)


def why_not() -> str | None:
    """Why no engine can run here; None: it may."""
    if os.geteuid() != 0:
        return "a Docker engine needs root"
    missing = [name for name in TOOLS if shutil.which(name, path=BINARIES) is None]
    if missing:
        return (
            f"{', '.join(missing)}: not installed "
            "(Debian's docker.io, docker-compose, debootstrap and iptables)"
        )
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlay file system"
    return None


@contextmanager
def running_engine(folder: Path) -> Iterator[Engine]:
    """Raises NoEngine if it cannot run here."""
    if reason := why_not():
        raise NoEngine(reason)
    with _alone(folder), _unchanged_network():
        yield from _run_engine(Engine(folder), folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A run that uses the same folder is waited for: two engines would answer on one socket."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _unchanged_network() -> Iterator[None]:
    """An engine turns forwarding on, adds rules and a bridge, and leaves them; all go again."""
    forwarding = Path("/proc/sys/net/ipv4/ip_forward")
    was_forwarding, had_bridge = forwarding.read_text(), BRIDGE.exists()
    rules = subprocess.run(["iptables-save"], capture_output=True, check=False).stdout
    try:
        yield
    finally:
        subprocess.run(["iptables-restore"], input=NO_RULES + rules, check=False)
        if BRIDGE.exists() and not had_bridge:
            subprocess.run(["ip", "link", "delete", BRIDGE.name], check=False)
        with suppress(OSError):
            forwarding.write_text(was_forwarding)


def _run_engine(engine: Engine, folder: Path) -> Iterator[Engine]:
    for name in ("home", "bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "daemon.json").write_text("{}")
    with engine.log.open("w") as log:
        process = subprocess.Popen(
            [
                "dockerd",
                f"--data-root={folder / 'data'}",
                f"--exec-root={folder / 'exec'}",
                f"--pidfile={folder / 'docker.pid'}",
                f"--host=unix://{engine.socket}",
                f"--config-file={folder / 'daemon.json'}",
            ],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=engine.environment,
            start_new_session=True,
        )
    try:
        _wait_answer(engine, process)
        yield engine
    finally:
        _end(process)


def _wait_answer(engine: Engine, process: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise NoEngine(f"dockerd ended: {_reason(engine.log)}")
        with suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
            engine.docker("version", timeout_s=5)
            return
        time.sleep(0.2)
    raise NoEngine(f"dockerd gave no answer within {START_S:g} s; its log is {engine.log}")


def _reason(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It ends its containers and its own containerd."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
