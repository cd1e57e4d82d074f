"""Who has lost the store: this replica alone, or all."""

from dataclasses import replace

from scheduler_service.cut_off import MOST_STEPS_WITHOUT_STORE, PATIENCE_S, CutOff
from shared.types import BlockCounts, MemoryStats, WorkerStats

STATS = WorkerStats(
    incarnation="w",
    epoch=3,
    driver="other",
    last_step_id=100,
    running_step_id=0,
    running_step_age_ms=0,
    num_sequences=1,
    blocks=BlockCounts(total=1, free=1, cached=0, held=0),
    memory=MemoryStats(),
    num_steps=0,
    num_sampled_tokens=0,
)


def lost():
    cut_off = CutOff("me")
    cut_off.lose(0.0)
    assert not cut_off.others_have_it(STATS)
    return cut_off


def test_workers_are_yielded_after_a_while_and_kept_once_the_store_is_back():
    cut_off = lost()

    assert not cut_off.must_yield(PATIENCE_S - 0.1)
    assert cut_off.must_yield(PATIENCE_S)
    cut_off.find()
    assert not cut_off.must_yield(PATIENCE_S)


def test_steps_that_need_no_store_prove_nothing():
    cut_off = lost()

    still = replace(STATS, last_step_id=100 + MOST_STEPS_WITHOUT_STORE)
    assert not cut_off.others_have_it(still)
    assert not cut_off.is_alone
    assert cut_off.others_have_it(replace(still, last_step_id=still.last_step_id + 1))
    assert cut_off.is_alone
    cut_off.find()
    assert not cut_off.is_alone


def test_a_later_grant_proves_it_with_its_first_step():
    cut_off = lost()
    granted = replace(STATS, epoch=4, driver="third", last_step_id=103)

    assert not cut_off.others_have_it(granted)
    assert cut_off.others_have_it(replace(granted, last_step_id=104))


def test_own_steps_and_undriven_workers_prove_nothing():
    cut_off = lost()

    for driver in ("me", ""):
        assert not cut_off.others_have_it(replace(STATS, driver=driver, last_step_id=900))
