"""Every step of the drivers here as a line of JSON, for the simulator and for whoever wants to look.

The newest are in the file named, the ones before in `<file>.1`; what is older is dropped.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from scheduler_service.step_notes import StepNote
from shared.errors import SettingError

MAX_BYTES = 256 * 1024 * 1024  # of one file; two are kept


class StepFile:
    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, now_s: Callable[[], float] = time.time
    ) -> None:
        """Appends. Raises SettingError if the file cannot be written."""
        self._path = path
        self._max_bytes = max_bytes
        self._now_s = now_s
        self._file = self._open()

    def _open(self) -> TextIO:
        try:
            return self._path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise SettingError(f"step file {self._path}: {error.strerror}") from error

    def write(self, note: StepNote) -> None:
        """`at_s`: seconds since 1970 when the result came. Times of the step are in the note."""
        line = {"at_s": round(self._now_s(), 6)} | asdict(note)
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        if self._file.tell() >= self._max_bytes:
            self._file.close()
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
            self._file = self._open()

    def close(self) -> None:
        self._file.close()
