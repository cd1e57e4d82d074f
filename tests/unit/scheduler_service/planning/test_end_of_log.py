"""A log that is complete already: whoever comes upon it ends the request instead of running it."""

import pytest

from scheduler_service.planning.live import Admissible, Ending
from scheduler_service.planning.outcome import TextStop
from scheduler_service.planning.results import ended_row
from scheduler_service.planning.snapshot import Limits
from scheduler_service.planning.view import DriverView
from shared.types import (
    Assignment,
    BlockCounts,
    FinishReason,
    Resident,
    ResidentSequence,
    SamplingParams,
    StopRules,
)

STOP = 9


def make(log: tuple[int, ...], **rules: int) -> Admissible:
    return Admissible(
        request_id="r",
        assignment=Assignment(1, 2),
        prompt_ids=(1, 2),
        log=log,
        sampling=SamplingParams(),
        stop=StopRules(**{"max_tokens": 4, "stop_token_ids": (STOP,)} | rules),
    )


def no_text(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("log", "rules", "reason"),
    [
        ((), {}, None),
        ((5, 6, 7), {}, None),
        ((5, 6, 7, 8), {}, FinishReason.LENGTH),
        ((5, STOP), {}, FinishReason.STOP_TOKEN),
        ((5, STOP), {"min_tokens": 2}, None),
        ((STOP, 5), {}, None),
    ],
)
def test_the_end_is_found_in_the_log(
    log: tuple[int, ...], rules: dict[str, int], reason: FinishReason | None
) -> None:
    row = ended_row(make(log, **rules), no_text)

    assert (row.end.reason if row and row.end else None) is reason
    if row is not None:
        assert (row.index, row.token_ids) == (len(log), ())


def test_a_stop_string_in_it_ends_it_too() -> None:
    stop = TextStop(stop_string="x", num_tokens=2, visible_tokens=1, visible_chars=3)

    row = ended_row(make((5, 6)), lambda *_: stop)

    assert row is not None and row.end is not None
    assert (row.end.reason, row.end.visible_chars) == (FinishReason.STOP_STRING, 3)


def test_a_takeover_ends_a_resident_one_that_has_all_its_tokens() -> None:
    """It was admitted with its whole log, so its worker will never say that it has finished."""
    request = make((5, 6, 7, 8))
    view = DriverView(limits=Limits(), block_size=16, find_text_stop=no_text)
    sequence = ResidentSequence(
        request_id="r",
        assignment=request.assignment,
        handle=3,
        num_prompt_tokens=2,
        num_computed_tokens=0,
        output_ids=request.log,
        num_held_blocks=1,
        finish=None,
    )
    resident = Resident(
        incarnation="w",
        epoch=2,
        last_step_id=7,
        sequences=(sequence,),
        blocks=BlockCounts(total=8, free=7, cached=0, held=1),
    )

    outcome = view.attach(resident, [request])

    (row,) = outcome.rows
    assert row.end is not None and row.end.reason is FinishReason.LENGTH
    live = view.live("r")
    assert live is not None and live.ending is Ending.FINISHED
    assert view.has_releases
