"""The step file: one line a step, bounded, and a clear error where it cannot be."""

import json
from pathlib import Path

import pytest
from step_notes import make_note

from scheduler_service.step_file import StepFile
from shared.errors import SettingError


def test_each_step_is_a_line_that_tells_all_of_the_note(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    steps = StepFile(path, now_s=lambda: 12.5)
    steps.write(make_note(1))
    steps.write(make_note(2))
    steps.close()

    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["at_s"], first["step_id"], second["step_id"]) == (12.5, 1, 2)
    assert first["skipped"] == [{"request_id": "s", "reason": "no_free_blocks", "count": 1}]
    assert first["admitted"][0]["age_ms"] == 12
    assert first["ended"] == [{"request_id": "e", "num_output_tokens": 4, "reason": "length"}]


def test_the_file_is_bounded_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    steps = StepFile(path, max_bytes=1000)
    for step_id in range(1, 12):
        steps.write(make_note(step_id))
    steps.close()

    assert path.stat().st_size < 1600
    lines = (tmp_path / "steps.jsonl.1").read_text() + path.read_text()
    assert json.loads(lines.splitlines()[-1])["step_id"] == 11
    assert {p.name for p in tmp_path.iterdir()} == {"steps.jsonl", "steps.jsonl.1"}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"step file .*missing"):
        StepFile(tmp_path / "missing" / "steps.jsonl")
