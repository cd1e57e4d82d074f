"""What the bench needs of a system: to be installed, started, and asked for tokens."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.peers.workloads import Workload
from shared.errors import ServingError
from tokentide.bench.load import Generates

THREADS = 2

Report = Callable[[str], None]


class Unavailable(ServingError):
    """The system cannot be installed or started here; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a system is started. Equal launches share one running system."""

    step_tokens: int
    num_sequences: int = 0  # 0: the system's own choice
    max_length: int = 0  # tokens of one request; 0: the system's own choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    client: Generates
    facts: Mapping[str, Any] = field(default_factory=dict)  # versions, what it chose by itself


class System(Protocol):
    """One of ours or a peer."""

    @property
    def name(self) -> str: ...
    @property
    def differs(self) -> str:
        """One sentence: what it does by default that was switched, and what stays different."""
        ...

    @property
    def default_step_tokens(self) -> int: ...
    @property
    def swept_step_tokens(self) -> tuple[int, ...]: ...
    @property
    def is_quarter(self) -> bool:
        """Too slow for more than a quarter of a workload, once."""
        ...

    def prepare(self, model_dir: Path, report: Report) -> None:
        """Install and convert what is missing; blocks, for minutes. Raises Unavailable."""

    def launch(self, workload: Workload, step_tokens: int) -> Launch: ...

    def open(self, launch: Launch, log_dir: Path) -> AbstractAsyncContextManager[Opened]:
        """Raises ServingError."""
        ...
