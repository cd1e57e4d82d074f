"""Compile kernels.c for this machine, once, and load it.

The library lies in a private directory under a name that says what went into it (source, flags,
compiler and processor) and what came out. One that is not what its name says is compiled again: a
library cut short by a crash or a full disk would kill whoever loads it. Without a compiler there are
no kernels, and the log says why.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.c")
COMPILERS = ("cc", "gcc", "clang")
COMPILE_TIMEOUT_S = 60.0
TRIAL_TIMEOUT_S = 20.0
# no -ffast-math: NaN must come through, and sums keep their order
COMMON_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")
# best first: -fopenmp shares torch's threads, and without it one thread computes
FLAG_SETS = (
    ("-march=native", "-mprefer-vector-width=512", "-fopenmp"),
    ("-march=native", "-fopenmp"),
    ("-march=native",),
    (),
)
# In a process of its own: a library that is damaged, or needs instructions that are not there, kills.
_TRIAL = "import ctypes, sys; sys.exit(not ctypes.CDLL(sys.argv[1]).tk_lanes())"


class BuildFailed(Exception):
    """No library: no compiler, or none that takes the source. One line says why."""


def load_library(cache_dir: Path | None = None) -> ctypes.CDLL | None:
    """The kernels, compiled now if they never were; None, with a logged reason, if they cannot be.

    `cache_dir` is kept private (0700); None = the default's.
    """
    try:
        return ctypes.CDLL(str(build(cache_dir or default_cache_dir())))
    except (BuildFailed, OSError) as error:
        log.warning("no CPU kernels, torch's slower operators serve instead: %s", error)
        return None


def default_cache_dir() -> Path:
    """In $TOKENTIDE_CACHE, else ~/.cache/tokentide, else, where there is no home that takes it, in the
    system's temporary directory."""
    if root := os.environ.get("TOKENTIDE_CACHE"):
        return Path(root) / "kernels"
    try:
        in_home = Path.home().resolve() / ".cache" / "tokentide" / "kernels"
        in_home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (RuntimeError, OSError):  # a container's user may have none, or one of somebody else
        owner = os.geteuid() if hasattr(os, "geteuid") else "user"
        return Path(tempfile.gettempdir()) / f"tokentide-kernels-{owner}"
    return in_home


def build(cache_dir: Path, flag_sets: Sequence[Sequence[str]] = FLAG_SETS) -> Path:
    """The library's path, made with the first flags that this compiler takes.

    Raises BuildFailed, or OSError where the directory cannot be used.
    """
    _make_private(cache_dir)
    compiler = _find_compiler()
    reasons: list[str] = []
    for flags in flag_sets:
        name = f"kernels-{_fingerprint(compiler, flags)}"
        if kept := _kept(cache_dir, name):
            return kept
        try:
            return _compile(compiler, (*COMMON_FLAGS, *flags), cache_dir, name)
        except BuildFailed as failed:
            reasons.append(str(failed))
    raise BuildFailed(f"{compiler}: {reasons[0]}")


def _make_private(cache_dir: Path) -> None:
    """What others may write, we would run."""
    cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = cache_dir.stat()
    owners = {state.st_uid, cache_dir.lstat().st_uid}  # of what a link points to, and of the link
    if hasattr(os, "geteuid") and owners != {os.geteuid()}:
        raise BuildFailed(f"{cache_dir} belongs to somebody else")
    if state.st_mode & 0o077:
        cache_dir.chmod(0o700)


def _kept(cache_dir: Path, name: str) -> Path | None:
    """A library of this name that is whole."""
    for path in sorted(cache_dir.glob(f"{name}-*.so")):
        try:
            found = _digest(path.read_bytes())
        except OSError:  # of a disk that has lost it, say
            continue
        if path.name == f"{name}-{found}.so":
            return path
    return None


def _find_compiler() -> str:
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise BuildFailed(f"no C compiler: none of {', '.join(COMPILERS)} is on PATH")


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    parts = (SOURCE.read_text(), compiler, *COMMON_FLAGS, *flags, _processor())
    return _digest("\0".join(parts).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _processor() -> str:
    """Name and instruction sets: a home directory may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(compiler: str, flags: Sequence[str], cache_dir: Path, name: str) -> Path:
    """The library, tried out. Raises BuildFailed."""
    descriptor, made_name = tempfile.mkstemp(dir=cache_dir, suffix=".part")
    os.close(descriptor)
    made = Path(made_name)
    try:
        _run([compiler, *flags, str(SOURCE), "-o", made_name, "-lm"], COMPILE_TIMEOUT_S)
        _run([sys.executable, "-I", "-S", "-c", _TRIAL, made_name], TRIAL_TIMEOUT_S)
        data = made.read_bytes()
        with made.open("rb+") as file:
            os.fsync(file.fileno())  # else a power cut may leave the name without its contents
        target = cache_dir / f"{name}-{_digest(data)}.so"
        os.replace(made, target)  # whole or not at all, whoever else is building
        return target
    finally:
        made.unlink(missing_ok=True)


def _run(command: Sequence[str], timeout_s: float) -> None:
    """Raises BuildFailed with the line that says why."""
    try:
        done = subprocess.run(
            command, capture_output=True, errors="replace", timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(str(error)) from error
    if done.returncode == 0:
        return
    end = "exit status" if done.returncode > 0 else "killed by signal"
    lines = (done.stderr.strip() or f"{end} {abs(done.returncode)}").splitlines()
    raise BuildFailed(next((line for line in lines if "error" in line.lower()), lines[0]))
