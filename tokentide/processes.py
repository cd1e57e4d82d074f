"""One service of a local stack as a child process: started, awaited, stopped, its log kept."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shared.errors import ServingError
from shared.serving_process import DIE_WITH_PARENT

INTERPRETER = (sys.executable, "-P")  # what is installed, not what lies in the current folder
STOP_S = 15.0
END_GROUP_S = 1.0
LOG_TAIL_LINES = 5


class ServiceFailed(ServingError):
    """A child process ended, or did not come up in time."""


class ServiceProcess:
    """A child in its own session, so that Ctrl-C reaches the launcher only, which stops it in order."""

    def __init__(
        self,
        label: str,
        run_dir: Path,
        module: str,
        args: list[str],
        interpreter: Sequence[str] = INTERPRETER,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`interpreter`: the command that `-m` and the module follow. `environment`: None: our own."""
        self.label = label
        self.log_path = run_dir / f"{label}.log"
        self.ports: dict[str, int] = {}
        self.announce_path = run_dir / f"{label}.json"
        self._command = [
            *interpreter,
            "-m",
            module,
            *args,
            "--announce",
            str(self.announce_path),
        ]
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.label} has not been started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        self.announce_path.unlink(missing_ok=True)
        environment = os.environ if self._environment is None else self._environment
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**environment, DIE_WITH_PARENT: str(os.getpid())},
            )

    async def restart(self, timeout_s: float) -> None:
        """Start it again on the ports it had, so that others find it where it was."""
        for flag, name in (("--port", "port"), ("--operations-port", "operations_port")):
            if name in self.ports and flag in self._command:
                self._command[self._command.index(flag) + 1] = str(self.ports[name])
        await self.start()
        await self.wait_ready(timeout_s)

    async def wait_ready(self, timeout_s: float) -> None:
        """Until it has announced its ports. Raises ServiceFailed."""
        assert self._process is not None, f"{self.label} has not been started"
        ended = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(timeout_s):
                while not self.announce_path.exists():
                    if ended.done():
                        raise ServiceFailed(self.why_ended())
                    await asyncio.sleep(0.02)
        except TimeoutError:
            message = f"{self.label} is not up after {timeout_s:.0f} s: {self.log_tail()}"
            raise ServiceFailed(message) from None
        finally:
            ended.cancel()
        self.ports = json.loads(self.announce_path.read_text())

    def why_ended(self) -> str:
        """One line if the service said why in one, as it does; else the end of its log."""
        tail = self.log_tail()
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            return f"{self.label} was ended by {signal.Signals(-code).name}"
        said = [line for line in tail.splitlines() if line.startswith("error: ")]
        return f"{self.label} ended: {said[-1].removeprefix('error: ') if said else tail}"

    async def wait(self) -> int:
        assert self._process is not None, f"{self.label} has not been started"
        return await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL if it takes too long; and whatever it had started goes with it."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)  # a stopped process cannot end
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self._process.wait()
        await self._end_group(self._process.pid)

    async def _end_group(self, group: int) -> None:
        """A compiler, say, that a worker was waiting for when it was told to end."""
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            async with asyncio.timeout(END_GROUP_S):
                while True:
                    os.killpg(group, signal.SIGKILL)
                    await asyncio.sleep(0.01)

    def signal(self, number: int) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(number)

    def log_tail(self) -> str:
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except OSError:
            return "no log"
        return "\n".join(lines[-LOG_TAIL_LINES:])
