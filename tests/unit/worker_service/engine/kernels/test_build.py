"""Compiling: once, privately, and never a reason to fail."""

import ctypes
import logging
import os
import shutil
from pathlib import Path

import pytest

from worker_service.engine.kernels import build as building
from worker_service.engine.kernels.build import BuildFailed, build, load_library
from worker_service.engine.kernels.kernels import Kernels

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in building.COMPILERS), reason="no C compiler"
)


@needs_compiler
def test_a_second_build_takes_what_the_first_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(tmp_path / "kernels")
    monkeypatch.setattr(building, "_compile", lambda *_: pytest.fail("compiled again"))

    assert build(tmp_path / "kernels") == first
    assert [path.name for path in first.parent.iterdir()] == [first.name]
    assert first.parent.stat().st_mode & 0o777 == 0o700


def test_without_a_compiler_there_are_no_kernels_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with caplog.at_level(logging.WARNING):
        assert Kernels.load(cache_dir=tmp_path) is None

    assert "no C compiler" in caplog.text


@needs_compiler
def test_a_compiler_that_fails_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int f( {")
    monkeypatch.setattr(building, "SOURCE", broken)

    with pytest.raises(BuildFailed, match=r"broken\.c.*error"):
        build(tmp_path / "kernels")

    assert not list((tmp_path / "kernels").iterdir())


@needs_compiler
def test_flags_that_the_compiler_refuses_give_way_to_the_next(tmp_path: Path) -> None:
    path = build(tmp_path, [("-march=no-such-machine",), ()])

    assert ctypes.CDLL(str(path)).tk_lanes() >= 4


def test_another_processor_or_source_is_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = building._fingerprint("cc", ())
    monkeypatch.setattr(building, "_processor", lambda: "another")
    elsewhere = building._fingerprint("cc", ())

    assert len({here, elsewhere, building._fingerprint("cc", ("-O0",))}) == 3


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")
def test_a_directory_of_somebody_else_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)

    assert load_library(tmp_path) is None
    assert "somebody else" in caplog.text
