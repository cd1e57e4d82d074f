"""Compiling: once, privately, and never a reason to fail."""

import ctypes
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
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


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        lambda library: library[:5000],
        lambda library: library[: len(library) * 3 // 4],
        lambda library: b"",
        lambda library: b"junk",
        lambda library: library[:-1] + b"\1",
    ],
    ids=["5000 bytes", "three quarters", "empty", "junk", "another last byte"],
)
def test_a_damaged_library_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    small = tmp_path / "small.c"
    small.write_text("int tk_lanes(void) { return 8; }\n")
    monkeypatch.setattr(building, "SOURCE", small)
    path = build(tmp_path / "kernels")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))

    again = build(tmp_path / "kernels")

    assert ctypes.CDLL(str(again)).tk_lanes() == 8
    assert [kept.read_bytes() for kept in again.parent.iterdir()] == [whole]


def fake_compiler(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it the only one. Its last argument but one is the file to write."""
    compiler = folder / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/bash\nout="${{@:(-2):1}}"\n{body}\n')
    compiler.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(compiler))


@needs_compiler
@pytest.mark.parametrize(
    "body",
    [
        "exit 0",
        'echo junk > "$out"',
        f'{shutil.which("cc") or "gcc"} -shared -fPIC -x c - -o "$out" <<< "int other;"',
        r"printf 'error \377\376 bad\n' >&2; exit 1",
        "kill -9 $$",
    ],
    ids=["writes nothing", "writes junk", "other symbols", "words not UTF-8", "killed"],
)
def test_a_compiler_that_makes_no_library_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake_compiler(tmp_path, body, monkeypatch)

    assert load_library(tmp_path / "kernels") is None

    assert "no CPU kernels" in caplog.text
    assert not list((tmp_path / "kernels").iterdir())


@pytest.mark.parametrize("home", ["unknown", "a file"])
def test_without_a_home_the_library_lies_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    def find_home() -> Path:
        if home == "unknown":
            raise RuntimeError("Could not determine home directory.")
        (tmp_path / "home").touch()
        return tmp_path / "home"

    monkeypatch.delenv("TOKENTIDE_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", find_home)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    assert building.default_cache_dir().parent == tmp_path
    assert building.default_cache_dir().name.startswith("tokentide-kernels-")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may")
def test_a_directory_behind_a_strangers_link_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "link", 12345, 12345)

    assert load_library(tmp_path / "link") is None
    assert "somebody else" in caplog.text


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
