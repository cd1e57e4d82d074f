"""Blocks from bytes, and where the bytes come from."""

from pathlib import Path

import pytest

from shared.errors import ModelUnusable
from worker_service.engine import memory
from worker_service.engine.memory import (
    GIB,
    KVBudget,
    MemoryProbe,
    count_blocks,
    limit_bytes,
    refuse_beyond_limit,
    warn_near_limit,
)


def test_an_explicit_number_of_blocks_is_taken_as_it_is() -> None:
    assert count_blocks(KVBudget(num_blocks=7), 10**15, most_useful=3, device="cpu") == 7


def test_blocks_from_bytes() -> None:
    assert count_blocks(KVBudget(num_bytes=1050), 100, most_useful=99, device="cpu") == 10


def test_no_more_blocks_than_could_ever_be_used() -> None:
    assert count_blocks(KVBudget(num_bytes=10**9), 100, most_useful=12, device="cpu") == 12


def test_not_even_one_block_is_one_clear_line() -> None:
    with pytest.raises(ModelUnusable, match=r"^no block .* takes 100 bytes, 99 are there.*$"):
        count_blocks(KVBudget(num_bytes=99), 100, most_useful=12, device="cpu")


def test_a_share_of_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)

    assert count_blocks(KVBudget(share=0.25), 10, most_useful=99, device="cpu") == 25


def test_what_blocks_need_elsewhere_is_part_of_a_share_and_not_of_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1200)

    shared = count_blocks(KVBudget(share=0.5), 10, most_useful=99, device="cpu", beside_bytes=2)
    named = count_blocks(KVBudget(num_bytes=600), 10, most_useful=99, device="cpu", beside_bytes=2)

    assert (shared, named) == (50, 60)


def test_a_control_group_limit_lowers_what_is_free(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")

    assert memory._cgroup_free_bytes(tmp_path) == 3000


def test_no_limit_is_endless(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("2000\n")

    assert memory._cgroup_free_bytes(tmp_path) == memory.NO_LIMIT
    assert memory._cgroup_free_bytes(tmp_path / "nothing") == memory.NO_LIMIT


def test_the_process_has_some_memory_and_the_cpu_no_device_figures() -> None:
    stats = MemoryProbe("cpu", kv_bytes=5).read()

    assert stats.process_bytes > 1 << 20
    assert stats.kv_bytes == 5
    assert stats.device_total_bytes == 0


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "5000\n", 5000),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "5000\n", 5000),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
    ],
)
def test_the_limit_of_either_version(cgroup: Path, name: str, text: str, limit: int | None) -> None:
    (cgroup / name).write_text(text)

    assert limit_bytes() == limit


def test_no_control_group_is_no_limit(cgroup: Path) -> None:
    assert limit_bytes() is None


@pytest.mark.parametrize(
    ("limit", "is_refused", "is_warned"),
    [(1.5, True, True), (1.9, False, True), (2.0, False, False)],
)
def test_what_a_limit_cannot_hold_is_refused_and_what_is_close_is_told(
    cgroup: Path,
    caplog: pytest.LogCaptureFixture,
    limit: float,
    is_refused: bool,
    is_warned: bool,
) -> None:
    (cgroup / "memory.max").write_text(str(int(limit * GIB)))
    needs = {"the weights": GIB // 2, "the cache": GIB}
    said = ""

    try:
        refuse_beyond_limit(needs, "cpu")
    except ModelUnusable as error:
        said = str(error)
    warn_near_limit(needs, "cpu")

    assert ("0.50 GiB for the weights, 1.00 GiB for the cache" in said) is is_refused
    assert (f"limit is {limit:.2f} GiB" in caplog.text) is is_warned
    assert "\n" not in said


def test_a_devices_memory_is_not_the_groups(cgroup: Path) -> None:
    (cgroup / "memory.max").write_text("1")

    refuse_beyond_limit({"the weights": GIB}, "cuda:0")
