"""The auditor works: faults planted in the product's functions are seen from the history."""

import asyncio

import pytest
from test_simulation import kill_a_driver_and_a_worker, run

from scheduler_service.committer import Committer
from scheduler_service.delivery import Reader
from scheduler_service.planning.view import DriverView
from shared.types import Resident

MAX_SEEDS = 40


def deliver_before_commit(monkeypatch):
    commit = Committer._commit

    async def planted(self, rows):
        self.listener.durable(rows)
        await asyncio.sleep(0.05)
        await commit(self, rows)

    monkeypatch.setattr(Committer, "_commit", planted)


def take_without_looking_at_the_index(monkeypatch):
    def planted(self, index, ids):
        self._ids.extend(ids)
        self.num_known += len(ids)
        self._news.set()
        return True

    monkeypatch.setattr(Reader, "take", planted)


def forget_rows_that_were_not_committed(monkeypatch):
    """A takeover that trusts the log only, and lets the worker go on from its own rows."""
    attach = DriverView.attach

    def planted(self, resident: Resident, running, batches=()):
        outcome = attach(self, resident, running, batches)
        outcome.rows.clear()
        return outcome

    monkeypatch.setattr(DriverView, "attach", planted)
    monkeypatch.setattr(Committer, "_from_length", lambda self, row, length: [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        deliver_before_commit,
        take_without_looking_at_the_index,
        forget_rows_that_were_not_committed,
    ],
)
def test_a_planted_fault_is_reported(monkeypatch, plant):
    plant(monkeypatch)

    for seed in range(MAX_SEEDS):
        try:
            cluster, _ = run(kill_a_driver_and_a_worker(seed))
        except (BaseExceptionGroup, TimeoutError, AssertionError):
            return  # a client's own check, or a stream that never ended
        if cluster.auditor.judge():
            return
    pytest.fail(f"not seen in {MAX_SEEDS} histories")
