"""What the worker's process refuses before it loads anything."""

import os
from pathlib import Path

import pytest

from worker_service import __main__ as process


def test_a_closed_model_folder_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", f"{folder}/config.json")

    monkeypatch.setattr(process, "check_model_files", refuse)
    monkeypatch.setattr(process, "set_up_logs", lambda *_: None)

    status = process.main(["--model", "/models/mine", "--port", "0"])

    assert status != 0
    assert (
        f"error: /models/mine/config.json: user {os.getuid()} cannot read it\n"
        == (capsys.readouterr().err.splitlines(keepends=True)[-1])
    )
