"""What a scheduler wrote of its steps, as a workload and as samples."""

import json
from pathlib import Path

import pytest

from scheduler_service.step_file import StepFile
from scheduler_service.step_notes import AdmittedNote, EndedNote, ScheduledNote, StepNote
from shared.cost_model import StepShape
from shared.types import StepTimings
from tokentide.simulator.recording import read_steps, samples_of, workload_of

STEP_NS = 100_000_000


def make_note(step_id: int, *chunks: ScheduledNote, num_sampled: int = 1, **fields) -> StepNote:
    fields = {"admitted": (), "ended": (), **fields}
    return StepNote(
        worker="w",
        incarnation="i",
        epoch=1,
        step_id=step_id,
        scheduled=chunks,
        skipped=(),
        preempted=(),
        num_waiting=0,
        num_running=1,
        plan_ns=1,
        strategy="continuous",
        num_sampled=num_sampled,
        timings=StepTimings(total_ns=STEP_NS),
        **fields,
    )


def admitted(request_id: str, **fields) -> AdmittedNote:
    sizes = {"num_prompt_tokens": 20, "num_output_tokens": 0, "max_tokens": 50, "age_ms": 0}
    return AdmittedNote(request_id=request_id, **{**sizes, **fields})


def recorded(tmp_path: Path) -> Path:
    """Two requests: one ends after two tokens, the other is still running."""
    path = tmp_path / "steps.jsonl"
    times = iter([1000.5, 1000.6, 1000.7])
    file = StepFile(path, now_s=lambda: next(times))
    file.write(
        make_note(1, ScheduledNote("a", 20, False, True), admitted=(admitted("a", age_ms=300),))
    )
    file.write(
        make_note(
            2,
            ScheduledNote("a", 1, True, False),
            ScheduledNote("b", 16, False, True),
            admitted=(admitted("b"),),
            ended=(EndedNote("a", 2, "stop_token"),),
        )
    )
    file.write(make_note(3, ScheduledNote("b", 4, False, False)))
    file.close()
    return path


def test_requests_arrive_as_they_did_and_are_as_long_as_they_were(tmp_path):
    first, second = workload_of(read_steps(recorded(tmp_path)))

    assert (first.arrival_s, first.max_tokens, len(first.prompt)) == (0, 2, 20)
    assert second.arrival_s == pytest.approx(0.4)
    assert (second.max_tokens, len(second.prompt)) == (50, 20)
    assert first.prompt != second.prompt


def test_steps_become_samples(tmp_path):
    assert samples_of(read_steps(recorded(tmp_path))) == [
        (StepShape.of_chunks([(0, 20, True)]), STEP_NS),
        (StepShape.of_chunks([(20, 1, True), (0, 16, False)]), STEP_NS),
        (StepShape.of_chunks([(16, 4, True)]), STEP_NS),
    ]


def test_a_line_that_was_cut_short_at_the_end_is_left_out(tmp_path):
    path = recorded(tmp_path)
    path.write_text(path.read_text()[:-20])

    assert len(read_steps(path)) == 2


@pytest.mark.parametrize("text", ["", "{}\n", "nonsense\n"])
def test_what_is_no_step_file_is_told(tmp_path, text):
    path = tmp_path / "steps.jsonl"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"steps.jsonl.*: no step"):
        read_steps(path)


def test_every_line_is_needed_as_the_scheduler_writes_it(tmp_path):
    """The step file's form and this reader change together."""
    line = json.loads(recorded(tmp_path).read_text().splitlines()[0])

    assert {"at_s", "scheduled", "admitted", "ended", "timings", "num_sampled"} <= set(line)
