"""What imports what: the contracts of pyproject.toml, and what a contract cannot see."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_planning_imports_nothing_that_acts():
    code = (
        "import sys, scheduler_service.planning.view, scheduler_service.planning.planner;"
        "print(*sorted(sys.modules))"
    )

    modules = set(run_python(code).split())

    forbidden = {"torch", "redis", "grpc", "google.protobuf", "asyncio", "logging", "random"}
    assert not forbidden & modules


def test_the_scheduler_runs_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None;"
        "import scheduler_service.service, scheduler_service.__main__, tokentide.cli"
    )

    run_python(code)


def test_the_client_needs_neither_store_nor_tokenizers():
    code = (
        "import sys\n"
        "for name in ('torch', 'redis', 'transformers', 'tokenizers'): sys.modules[name] = None\n"
        "import tokentide"
    )

    run_python(code)


def test_nothing_unpickles_or_evaluates():
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in ("shared", "scheduler_service", "worker_service", "tokentide")
        for path in (ROOT / package).rglob("*.py")
        if "pb" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(word in line for word in ("import pickle", "import marshal", " eval(", " exec("))
    ]

    assert offenders == []
