"""The command line as a child process, and what it leaves behind."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "TEST_COMMAND_MARK"  # in the environment of the command and so of all that it starts


class CommandProcess:
    def __init__(self, process: subprocess.Popen[str], mark: str) -> None:
        self.process = process
        self.lines: list[str] = []
        self._mark = mark

    def wait_line(self, words: str) -> str:
        """The next line that has these words. The test's time limit bounds it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if words in line:
                return line
        raise AssertionError(f"ended before {words!r} came: {self.output}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once its output has ended."""
        assert self.process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        return self.process.wait()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def ports(self) -> list[int]:
        """All that the output names."""
        return [int(port) for port in re.findall(r"port (\d+)", self.output)]

    def processes_left(self) -> list[str]:
        return list(self._started().values())

    def wait_none_left(self) -> None:
        """Until all that it had started has ended. The test's time limit bounds it."""
        for pid in self._started():
            _wait_ended(pid)

    def kill_all(self) -> None:
        self.process.kill()
        for pid in self._started():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def _started(self) -> dict[int, str]:
        """What lives of it. The store writes over its environment: it is known by the output."""
        named = (int(pid) for pid in re.findall(r": process (\d+)", self.output))
        living = {pid: shown for pid in named if (shown := _shown(pid))}
        living |= {pid: _shown(pid) for pid in _marked(self._mark)}
        living.pop(self.process.pid, None)
        return living


@contextmanager
def command(*args: str, **environment: str) -> Iterator[CommandProcess]:
    """`tokentide args`, its stderr among its stdout. Whatever is left of it at the end is killed."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, **environment, MARK: mark}
    environment.pop("FORCE_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tokentide.cli", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment,
    )
    running = CommandProcess(process, mark)
    try:
        yield running
    finally:
        running.kill_all()
        assert process.stdout is not None
        process.stdout.close()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_ended(pid: int) -> None:
    """Of any process, not only of a child."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([process], [], [])  # readable once it has ended
    finally:
        os.close(process)


def _marked(mark: str) -> list[int]:
    """Living processes with this mark, by Linux's /proc."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue  # it has ended, or is not ours
    return found


def _shown(pid: int) -> str:
    """Its command line; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
