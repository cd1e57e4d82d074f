"""A step record for tests, with something in every field."""

from scheduler_service.planning.snapshot import Skipped, SkipReason
from scheduler_service.step_notes import AdmittedNote, EndedNote, ScheduledNote, StepNote


def make_note(step_id: int) -> StepNote:
    return StepNote(
        worker="w",
        incarnation="i",
        epoch=1,
        step_id=step_id,
        scheduled=(ScheduledNote("r", 3, is_decode=False, is_admitted=True),),
        admitted=(
            AdmittedNote(
                request_id="r", num_prompt_tokens=3, num_output_tokens=0, max_tokens=9, age_ms=12
            ),
        ),
        skipped=(Skipped("s", SkipReason.NO_FREE_BLOCKS),),
        preempted=("p",),
        num_waiting=1,
        num_running=2,
        plan_ns=5,
        strategy="static",
        ended=(EndedNote("e", 4, "length"),),
    )
