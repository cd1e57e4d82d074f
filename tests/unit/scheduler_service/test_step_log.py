"""The step log: recent records, and watchers that are told what they missed."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

from step_notes import make_note

from scheduler_service.step_log import MAX_BEHIND, StepLog


async def test_a_watcher_too_slow_is_told_how_much_it_missed() -> None:
    log = StepLog()
    log.record(make_note(1))
    async with aclosing(log.watch(replay_recent=True)) as records:
        note, num_missed = await anext(records)
        assert (note.step_id, num_missed) == (1, 0)
        for number in range(2, MAX_BEHIND + 5):
            log.record(replace(make_note(1), step_id=number))
        seen = [await anext(records) for _ in range(MAX_BEHIND)]
        async with asyncio.timeout(5):
            log.record(make_note(1000))
            last, num_missed = await anext(records)

    assert [note.step_id for note, _ in seen] == list(range(2, MAX_BEHIND + 2))
    assert (last.step_id, num_missed) == (1000, 3)
