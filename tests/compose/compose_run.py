"""`make test-compose`: our compose files in real containers, on a Docker engine of its own.

First as a new user, by README's lines, on the real model; then every kind of container is killed, stopped, paused
and rolled under simulated workers, whose tokens are a pure function of the seed. Exit status 0 only if no stream
failed and no token changed. Skips, with the reason, where no engine can run. The parts `readme` and `faults` run alone
if they are named.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compose_engine import Engine, NoEngine, running_engine
from compose_load import Load
from compose_model import combinations_of_all
from compose_phases import (
    Report,
    follow_name_inside,
    run_faults,
    scale,
    time_scheduler_start,
    under_load,
)
from compose_stack import KINDS, Stack
from compose_stand_ins import BUILD_S, make_stand_ins, wheels_served
from steady_profile import write_steady_profile

from tokentide import Client

ROOT = Path(__file__).resolve().parents[2]
FIRST_PORT, NUM_PORTS = 47051, 3
PORTS = {"TOKENTIDE_PORTS": f"{FIRST_PORT}-{FIRST_PORT + NUM_PORTS - 1}"}
ENDPOINTS = [f"localhost:{FIRST_PORT + n}" for n in range(NUM_PORTS)]
IMAGES = ("tokentide/scheduler", "tokentide/worker", "python:3.11-slim-bookworm", "valkey/valkey:9")
STEP_MS = 100.0
SIMULATED_TOKENS, REAL_TOKENS = 60, 24


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # containers and engine are ended too
    folder = default_folder()
    try:
        with running_engine(folder / "engine") as engine:
            return run(engine, folder)
    except NoEngine as reason:
        print(f"skipped: {reason}")
        return 0


def default_folder() -> Path:
    cache = os.environ.get("TOKENTIDE_CACHE") or Path.home() / ".cache" / "tokentide"
    return Path(cache) / "compose"


def run(engine: Engine, folder: Path) -> int:
    report = Report()
    tree = copy_tree(folder / "tree")
    stand_in_for_docker_compose(engine)
    build(engine, tree, report)
    check_configurations(engine, tree, report)
    parts = sys.argv[1:] or ["readme", "faults"]
    if "readme" in parts:
        asyncio.run(run_as_new_user(engine, tree, report))
    if "faults" in parts:
        asyncio.run(run_under_faults(engine, tree, folder, report))
    # Layers of old sources would fill the disk.
    engine.docker("image", "prune", "--force", "--filter", "until=168h")
    for name in IMAGES:
        report.note(f"image {name}: {image_mb(engine, name):.0f} MB")
    for what in report.wrong:
        print(f"WRONG: {what}")
    tallies = [tally for _, _, tally in report.rows if tally is not None]
    print(
        f"{sum(t.num_finished for t in tallies)} streams, "
        f"{sum(len(t.failed) for t in tallies)} failed, "
        f"{sum(len(t.changed) for t in tallies)} with changed tokens"
    )
    return 1 if report.wrong else 0


def copy_tree(into: Path) -> Path:
    """The files as they lie here, of which git knows: what a clone of them would hold."""
    shutil.rmtree(into, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, into / name)
    return into


def stand_in_for_docker_compose(engine: Engine) -> None:
    """Debian has docker-compose as a program; users have it as docker's plugin."""
    plugin = engine.folder / "home/.docker/cli-plugins/docker-compose"
    plugin.parent.mkdir(parents=True, exist_ok=True)
    told = {"SchemaVersion": "0.1.0", "Vendor": "stand-in", "Version": "v0.0.0"}
    plugin.write_text(
        "#!/bin/sh\n"
        f"[ \"$1\" != docker-cli-plugin-metadata ] || {{ echo '{json.dumps(told)}'; exit; }}\n"
        'shift\nexec docker-compose "$@"\n'
    )
    plugin.chmod(0o755)


def build(engine: Engine, tree: Path, report: Report) -> None:
    began_s = time.monotonic()
    make_stand_ins(engine)
    report.add("base images", time.monotonic() - began_s)
    host_network = str(Path(__file__).with_name("host_network.yaml"))
    with wheels_served():
        for service in ("scheduler", "worker"):
            began_s = time.monotonic()
            engine.call(
                (
                    "docker-compose",
                    "--file",
                    "compose.yaml",
                    "--file",
                    host_network,
                    "build",
                    service,
                ),
                timeout_s=BUILD_S,
                cwd=str(tree / "deploy"),
            )
            report.add(f"build {service}", time.monotonic() - began_s)
            # A second name keeps the layers when a run removes the first.
            engine.docker("tag", f"tokentide/{service}", f"tokentide/{service}:kept")


def check_configurations(engine: Engine, tree: Path, report: Report) -> None:
    deploy = tree / "deploy"
    engine.call(("./new-password",), timeout_s=10, cwd=str(deploy))
    for which in combinations_of_all():
        files = [flag for name in which.files for flag in ("--file", name)]
        profiles = [flag for name in which.profiles for flag in ("--profile", name)]
        engine.call(
            ("docker-compose", *files, *profiles, "config", "--quiet"),
            timeout_s=60,
            cwd=str(deploy),
        )
    report.note(f"docker-compose config: {len(combinations_of_all())} combinations are valid")


def image_mb(engine: Engine, name: str) -> float:
    return int(engine.docker("inspect", "--format", "{{.Size}}", name)) / 1e6


@contextmanager
def removed_at_the_end(stack: Stack, *, volumes: bool) -> Iterator[None]:
    """Whatever happens; what the containers said is shown if it went wrong."""
    flags = ("--volumes",) if volumes else ()
    stack.compose("down", "--remove-orphans", *flags)
    try:
        yield
    except BaseException:
        print(stack.logs())
        raise
    finally:
        stack.compose("down", "--remove-orphans", *flags)


def readme_lines() -> Sequence[str]:
    """The commands of README's block on containers, without their comments."""
    blocks = re.findall(
        r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    block = next(block for block in blocks if "docker compose" in block)
    return [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines() if line.strip()]


async def run_as_new_user(engine: Engine, tree: Path, report: Report) -> None:
    """README's lines as they stand, in one shell's order; the images are built anew from kept layers."""
    for service in ("scheduler", "worker"):
        engine.docker("rmi", f"tokentide/{service}")
    enter, *lines = readme_lines()
    shutil.rmtree(tree / "deploy/secrets", ignore_errors=True)
    stack = Stack(engine, tree / "deploy", ("compose.yaml",), PORTS)
    first, up, ask, grow, down = enter.removeprefix("cd deploy && "), *lines
    stack.shell(first)
    # The fetched model stays for the next run.
    with removed_at_the_end(stack, volumes=False):
        began_s = time.monotonic()
        stack.shell(up)
        stack.wait_healthy(*KINDS)
        report.add("README: up, from nothing to healthy", time.monotonic() - began_s)
        began_s = time.monotonic()
        answer = stack.shell(ask)
        report.add("README: ask", time.monotonic() - began_s)
        report.note(f"the answer: {answer.strip()!r}")
        async with Client(ENDPOINTS) as client:
            load = Load(client, "real", REAL_TOKENS)
            began_s = time.monotonic()
            tally = await load.run_calm()
            report.add("twenty streams, real model", time.monotonic() - began_s, tally)
            await under_load(load, report, f"README: {grow}"[:43], lambda: _grow(stack, grow))
        began_s = time.monotonic()
        stack.shell(down)
        report.add("README: down", time.monotonic() - began_s)


def _grow(stack: Stack, line: str) -> None:
    stack.shell(line)
    stack.wait_healthy(*KINDS)


async def run_under_faults(engine: Engine, tree: Path, folder: Path, report: Report) -> None:
    models = folder / "profile"
    models.mkdir(exist_ok=True)
    write_steady_profile(models / "steady.json", STEP_MS)
    variables = {
        **PORTS,
        "TOKENTIDE_MODELS": str(models),
        "TOKENTIDE_PROFILE": "/models/steady.json",
        "COMPOSE_PROJECT_NAME": "tokentide-faults",
    }
    stack = Stack(engine, tree / "deploy", ("compose.yaml", "compose.simulate.yaml"), variables)
    with removed_at_the_end(stack, volumes=True):
        began_s = time.monotonic()
        stack.compose("up", "--detach")
        stack.wait_healthy(*KINDS)
        report.add("up, simulated workers", time.monotonic() - began_s)
        async with Client(ENDPOINTS) as client:
            load = Load(client, "faults", SIMULATED_TOKENS)
            began_s = time.monotonic()
            tally = await load.run_calm()
            report.add("twenty streams", time.monotonic() - began_s, tally)
            await under_load(load, report, "scale to 3 schedulers, 2 workers", lambda: scale(stack))
            time_scheduler_start(stack, report)
            began_s = time.monotonic()
            await asyncio.to_thread(follow_name_inside, stack, report)
            report.add("a client inside follows the name", time.monotonic() - began_s)
            await run_faults(stack, load, report)
        began_s = time.monotonic()
        stack.compose("down")
        report.add("down", time.monotonic() - began_s)


if __name__ == "__main__":
    sys.exit(main())
