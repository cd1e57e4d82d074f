"""Commits and logs, on the model and on a real Valkey."""

from dataclasses import replace

import pytest
from fakes_store import (
    READER,
    OpenStore,
    StoreHarness,
    attach,
    make_new_request,
    make_row,
    numbered,
    run_all,
    status_of,
    submit_all,
)

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import RowStatus
from shared.types import Assignment, FinishReason


async def test_commit_appends_where_the_log_ends(store: RequestStore) -> None:
    fence = await attach(store)
    one, two = await run_all(store, fence, "r1", "r2")

    first = await store.commit(fence, [make_row(one, 0, (1, 2)), make_row(two, 0, (9,))])
    second = await store.commit(fence, [make_row(one, 2, (3,)), make_row(one, 3, (4, 5))])

    assert (first.statuses, first.lengths) == (("appended", "appended"), (2, 1))
    assert (second.statuses, second.lengths) == (("appended", "appended"), (3, 5))
    slices = await store.read_logs([("r1", 0), ("r1", 3), ("r1", 9), ("r2", 0), ("unknown", 0)])
    assert [s and s.token_ids for s in slices] == [(1, 2, 3, 4, 5), (4, 5), (), (9,), None]
    assert [s and s.num_output_tokens for s in slices] == [5, 5, 5, 1, None]


async def test_a_replay_with_equal_values_is_answered_and_its_tail_appended(
    store: RequestStore,
) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")
    await store.commit(fence, [make_row(record, 0, (1, 2, 3))])

    outcome = await store.commit(
        fence,
        [
            make_row(record, 0, (1, 2)),
            make_row(record, 1, (2, 3)),
            make_row(record, 2, (3, 4, 5)),
            make_row(record, 5, ()),
        ],
    )

    assert outcome.statuses == ("replayed", "replayed", "appended", "appended")
    assert outcome.lengths == (3, 3, 5, 5)


async def test_a_row_beyond_the_log_is_a_gap_and_finishes_nothing(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")

    row = make_row(record, 2, (3,), FinishReason.LENGTH)
    outcome = await store.commit(fence, [row])

    assert (outcome.statuses, outcome.lengths) == ((RowStatus.GAP,), (0,))
    assert await status_of(store, "r1") == "running"


@pytest.mark.parametrize(("index", "token_ids"), [(0, (1, 7)), (1, (7, 3, 4)), (2, (7,))])
async def test_other_values_than_the_log_end_as_data_loss(
    store: RequestStore, index: int, token_ids: tuple[int, ...]
) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")
    await store.commit(fence, [make_row(record, 0, (1, 2, 3))])

    outcome = await store.commit(fence, [make_row(record, index, token_ids)])

    (slice_,) = await store.read_logs([("r1", 0)])
    assert outcome.statuses == (RowStatus.DATA_LOSS,)
    assert slice_ is not None and (slice_.status, slice_.token_ids) == ("data_loss", (1, 2, 3))
    assert slice_.finish is None and slice_.error
    assert outcome.reply.window.num_running == 0


async def test_rows_of_another_assignment_or_of_an_ended_request_are_stale(
    store: RequestStore,
) -> None:
    first, second = await attach(store, "worker-1"), await attach(store, "worker-2")
    old, ended = await run_all(store, first, "r1", "r2")
    await store.requeue(first, ["r1"])
    (new,) = (await store.claim(second, ["r1"])).claimed
    await store.commit(first, [make_row(ended, 0, (5,), FinishReason.LENGTH)])
    forged = Assignment(new.assignment.counter, new.assignment.nonce ^ 1)

    outcome = await store.commit(first, [make_row(old, 0, (1,)), make_row(ended, 1, (6,))])
    zombie = await store.commit(first, [make_row(new, 0, (1,))])
    rolled_back = await store.commit(second, [replace(make_row(new, 0, (2,)), assignment=forged)])

    assert outcome.statuses == ("stale", "stale")
    assert outcome.lengths == (0, 1)
    assert zombie.statuses == rolled_back.statuses == ("stale",)
    assert (await store.commit(second, [make_row(new, 0, (1,))])).statuses == ("appended",)


async def test_rows_after_the_finishing_one_are_stale(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")

    outcome = await store.commit(
        fence, [make_row(record, 0, (1,), FinishReason.STOP_TOKEN), make_row(record, 1, (2,))]
    )

    assert outcome.statuses == ("appended", "stale")
    assert outcome.lengths == (1, 1)


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (FinishReason.STOP_TOKEN, "finished"),
        (FinishReason.LENGTH, "finished"),
        (FinishReason.STOP_STRING, "finished"),
        (FinishReason.CANCELLED, "cancelled"),
        (FinishReason.EXPIRED, "expired"),
        (FinishReason.ERROR, "failed"),
    ],
)
async def test_finish_comes_with_the_last_token(
    harness: StoreHarness, finish: FinishReason, status: str
) -> None:
    store = harness.store
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1", watch=READER, timeout_ms=60_000)

    outcome = await store.commit(
        fence,
        [
            make_row(
                record,
                0,
                (1, 2, 3),
                finish,
                visible_tokens=0,
                visible_chars=11,
                stop_match="stöp\n",
                error="why",
                num_cached_tokens=8,
            )
        ],
    )

    (slice_,) = await store.read_logs([("r1", 1)])
    assert slice_ is not None
    assert (slice_.status, slice_.finish, slice_.token_ids) == (status, finish, (2, 3))
    assert (slice_.visible_tokens, slice_.visible_chars) == (0, 11)
    assert (slice_.stop_match, slice_.error, slice_.num_cached_tokens) == ("stöp\n", "why", 8)
    assert (outcome.reply.window.num_running, outcome.reply.window.num_waiting) == (0, 0)
    assert await harness.time_to_live_s("request:r1") in (None, 599, 600)
    assert await harness.time_to_live_s("tokens:r1") in (None, 599, 600)


async def test_cached_tokens_are_kept_when_a_row_does_not_know_them(store: RequestStore) -> None:
    fence = await attach(store)
    (record,) = await run_all(store, fence, "r1")

    await store.commit(fence, [make_row(record, 0, (1,), num_cached_tokens=0)])
    await store.commit(fence, [make_row(record, 1, (1,), num_cached_tokens=16)])
    await store.commit(fence, [make_row(record, 2, (2,))])

    (slice_,) = await store.read_logs([("r1", 0)])
    assert slice_ is not None and slice_.num_cached_tokens == 16


async def test_an_ended_request_is_forgotten_after_its_retention(open_store: OpenStore) -> None:
    async with open_store(retention_s=1) as opened:
        await submit_all(opened.store, "r1")
        await opened.store.cancel(["r1"])
        if opened.server is not None:
            await opened.server.pexpire(opened.prefix + "request:r1", 1)  # the real clock is slow
            await opened.pass_time(5)
        else:
            await opened.pass_time(1000)

        assert await opened.store.read_logs([("r1", 0)]) == (None,)
        assert await opened.store.read_payload("r1") is None
        assert await opened.store.watch("r1", READER) is False
        assert (await opened.store.submit(make_new_request())).created is True


async def test_nothing_is_kept_for_ever_for_ended_requests(harness: StoreHarness) -> None:
    store = harness.store
    fence = await attach(store)
    records = await run_all(store, fence, *numbered("r", 6), watch=READER, timeout_ms=60_000)
    await submit_all(store, "w1", "w2", watch=READER, timeout_ms=60_000)
    await store.cancel(["w1", "r1", "r2"])
    await store.requeue(fence, ["r1", "r5"])
    await store.commit(
        fence,
        [make_row(records[0], 0, (1,), FinishReason.LENGTH)]
        + [make_row(records[i], 0, (1,)) for i in (2, 3, 4)]
        + [make_row(records[3], 0, (9,))]
        + [make_row(records[2], 1, (), FinishReason.CANCELLED)]
        + [make_row(records[4], 1, (2,), FinishReason.ERROR, error="x")],
    )
    await store.cancel(["r5", "w2"])
    await store.leave("nobody")
    totals = await store.beat("replica-a")
    await store.detach_worker(fence)
    await store.leave("replica-a")

    slices = await store.read_logs([(i, 0) for i in (*numbered("r", 6), "w1", "w2")])
    assert [slice_.status if slice_ else None for slice_ in slices] == [
        "finished",
        "cancelled",
        "cancelled",
        "data_loss",
        "failed",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    assert (totals.num_waiting, totals.num_running, totals.num_waiting_tokens) == (0, 0, 0)
    assert await harness.keys_for_ever() <= {"meta"}
