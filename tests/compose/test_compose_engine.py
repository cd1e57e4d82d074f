"""Where no engine can run, the reason is one line."""

import contextlib

import pytest
from compose_engine import NoEngine, running_engine, why_not


@pytest.fixture
def no_programs(tmp_path, monkeypatch):
    monkeypatch.setattr("compose_engine.BINARIES", str(tmp_path / "nothing"))
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_missing_programs_are_named(no_programs):
    reason = why_not()

    assert reason is not None
    assert "dockerd" in reason and "debootstrap" in reason and "\n" not in reason


def test_root_is_needed(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert why_not() == "a Docker engine needs root"


def test_an_engine_that_ends_at_once_says_why(tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    dockerd = programs / "dockerd"
    dockerd.write_text(
        "#!/bin/sh\necho 'failed to mount overlay: operation not permitted' >&2\nexit 1\n"
    )
    dockerd.chmod(0o755)
    monkeypatch.setattr("compose_engine.BINARIES", f"{programs}:/bin:/usr/bin")
    monkeypatch.setattr("compose_engine.why_not", lambda: None)
    monkeypatch.setattr("compose_engine._unchanged_network", contextlib.nullcontext)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")

    with (
        pytest.raises(NoEngine, match="operation not permitted"),
        running_engine(tmp_path / "engine"),
    ):
        pass
