"""Compile kernels.c for this machine, once, and load it.

The library lies in a private directory under a name that says what went into it: source, flags,
compiler and processor. Without a compiler there are no kernels, and the log says why.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.c")
COMPILERS = ("cc", "gcc", "clang")
COMPILE_TIMEOUT_S = 60.0
# no -ffast-math: NaN must come through, and sums keep their order
COMMON_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")
# best first: -fopenmp shares torch's threads, and without it one thread computes
FLAG_SETS = (
    ("-march=native", "-mprefer-vector-width=512", "-fopenmp"),
    ("-march=native", "-fopenmp"),
    ("-march=native",),
    (),
)


class BuildFailed(Exception):
    """No library: no compiler, or none that takes the source. One line says why."""


def load_library(cache_dir: Path | None = None) -> ctypes.CDLL | None:
    """The kernels, compiled now if they never were; None, with a logged reason, if they cannot be.

    `cache_dir` is kept private (0700); None = $TOKENTIDE_CACHE, else ~/.cache/tokentide.
    """
    try:
        return ctypes.CDLL(str(build(cache_dir or default_cache_dir())))
    except (BuildFailed, OSError) as error:
        log.warning("no CPU kernels, torch's slower operators serve instead: %s", error)
        return None


def default_cache_dir() -> Path:
    root = Path(os.environ.get("TOKENTIDE_CACHE") or Path.home() / ".cache" / "tokentide")
    return root / "kernels"


def build(cache_dir: Path, flag_sets: Sequence[Sequence[str]] = FLAG_SETS) -> Path:
    """The library's path, made with the first flags that this compiler takes.

    Raises BuildFailed, or OSError where the directory cannot be used.
    """
    _make_private(cache_dir)
    compiler = _find_compiler()
    reasons: list[str] = []
    for flags in flag_sets:
        target = cache_dir / f"kernels-{_fingerprint(compiler, flags)}.so"
        if target.exists():
            return target
        if reason := _compile(compiler, (*COMMON_FLAGS, *flags), target):
            reasons.append(reason)
            continue
        return target
    raise BuildFailed(f"{compiler}: {reasons[0]}")


def _make_private(cache_dir: Path) -> None:
    """What others may write, we would run."""
    cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = cache_dir.stat()
    if hasattr(os, "geteuid") and state.st_uid != os.geteuid():
        raise BuildFailed(f"{cache_dir} belongs to somebody else")
    if state.st_mode & 0o077:
        cache_dir.chmod(0o700)


def _find_compiler() -> str:
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise BuildFailed(f"no C compiler: none of {', '.join(COMPILERS)} is on PATH")


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    parts = (SOURCE.read_text(), compiler, *COMMON_FLAGS, *flags, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _processor() -> str:
    """Name and instruction sets: a home directory may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(compiler: str, flags: Sequence[str], target: Path) -> str | None:
    """None if it went well, else why not."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    os.close(descriptor)
    command = [compiler, *flags, str(SOURCE), "-o", name, "-lm"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
        if done.returncode == 0:
            os.replace(name, target)  # whole or not at all, whoever else is building
            return None
        lines = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()
        return next((line for line in lines if "error" in line), lines[0])
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        Path(name).unlink(missing_ok=True)
