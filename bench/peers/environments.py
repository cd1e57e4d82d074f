"""A virtual environment per peer, with pinned versions from PyPI, under ~/.cache/tokentide/peers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.system import Report, Unavailable
from tokentide.models import default_cache_dir

STAMP = "tokentide-requirements.txt"


def peers_dir() -> Path:
    return default_cache_dir() / "peers"


def python_of(name: str) -> Path:
    return peers_dir() / name / "bin" / "python"


def ensure_environment(
    name: str,
    requirements: Sequence[str],
    report: Report,
    *,
    without: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Path:
    """The environment's Python. `without`: what is taken out again after the installation.

    Raises Unavailable.
    """
    folder = peers_dir() / name
    wanted = "\n".join([*requirements, *(f"without {package}" for package in without)])
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == wanted:
        return python_of(name)
    shutil.rmtree(folder, ignore_errors=True)
    report(f"{name}: installing {', '.join(requirements)} (minutes, once)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    run_or_unavailable(name, [sys.executable, "-m", "venv", str(folder)])
    pip = [str(python_of(name)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    log = folder.with_name(f"{name}-install.log")
    run_or_unavailable(name, [*pip, "install", *requirements], log, environment)
    if without:
        run_or_unavailable(name, [*pip, "uninstall", "--yes", *without], log)
    stamp.write_text(wanted)
    return python_of(name)


def run_or_unavailable(
    name: str,
    command: Sequence[str],
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    if log is not None:
        log.write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise Unavailable(f"{name}: {last_error(done.stderr or done.stdout)}")


def last_error(text: str) -> str:
    """The last line that names an error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no output"])[-1][:300]
