"""The command line as a child process, and what it leaves behind."""

import os
import re
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
        return [shown for pid, shown in _marked(self._mark) if pid != self.process.pid]

    def kill_all(self) -> None:
        for pid, _ in _marked(self._mark):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


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


def _marked(mark: str) -> list[tuple[int, str]]:
    """Living processes with this mark, by Linux's /proc."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                    shown = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append((int(folder.name), shown))
            except OSError:
                continue  # it has ended, or is not ours
    return found
