"""Steps as people read them: who was in, who was left out and why."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from scheduler_service.planning.snapshot import SkipReason
from shared.pb import operations_pb2 as pb
from tokentide.commands import steps as steps_command
from tokentide.commands.step_watch import SteppedRecord, record_from_pb
from tokentide.commands.steps import recent, record_text

STRATEGIES_PAGE = Path(__file__).parents[4] / "docs" / "strategies.md"


def make_record(step_id: int = 7, **skipped: int) -> SteppedRecord:
    message = pb.StepRecord(worker="worker-0", step_id=step_id)
    message.scheduled.add(request_id="alice", num_tokens=1, is_decode=True)
    for reason, count in skipped.items():
        message.skipped.add(request_id="", reason=reason, count=count)
    return record_from_pb(message)


def test_those_left_out_stand_below_the_step_by_reason() -> None:
    message = pb.StepRecord(worker="worker-0", step_id=7, num_missed=2)
    for name in ("bob", "carol"):
        message.skipped.add(request_id=name, reason="over_token_budget", count=1)
    message.skipped.add(reason="beyond_window", count=12)

    missing, step, budget, window = record_text(record_from_pb(message)).splitlines()

    assert "2 records are missing" in missing
    assert step.startswith("worker-0  step    7")
    assert budget == "    not in it: 2 over_token_budget (bob, carol)"
    assert window == "    not in it: 12 beyond_window"


def test_many_names_are_cut() -> None:
    message = pb.StepRecord()
    for number in range(9):
        message.skipped.add(request_id=f"r{number}", reason="sequence_cap", count=1)

    assert "9 sequence_cap (r0, r1, r2, r3, ...)" in record_text(record_from_pb(message))


async def test_the_last_records_are_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_command, "RECENT_S", 0.01)

    async def watch() -> AsyncGenerator[SteppedRecord, None]:
        for step_id in range(5):
            yield make_record(step_id)
        await asyncio.Event().wait()  # nothing more happens

    found = await recent([watch()], 2)

    assert [record.step.step_id for record in found] == [3, 4]


def test_every_reason_is_explained_on_the_page_that_help_names() -> None:
    page = STRATEGIES_PAGE.read_text()

    assert [reason for reason in SkipReason if f"`{reason.value}`" not in page] == []
