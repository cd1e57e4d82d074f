"""Random sequences of calls on the model and on a real Valkey: the same answers to each."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes_store import StoreHarness, make_new_request, open_model, open_redis

from scheduler_service.store.interface import RequestStore
from scheduler_service.store.values import (
    AdoptOutcome,
    AttachOutcome,
    BatchStart,
    ClaimOutcome,
    CommitOutcome,
    CommitRow,
    DriverReply,
    Fence,
    PoolTotals,
    RunningRecord,
    Watch,
)
from shared.errors import ServingError
from shared.types import FinishReason

LAPSING = ("submit", "watch", "unwatch", "refresh")  # after these, some deadline may be due
WEIGHTS = {
    "submit": 6,
    "attach": 3,
    "poll": 1,
    "claim": 6,
    "commit": 12,
    "requeue": 2,
    "cancel": 1,
    "watch": 1,
    "unwatch": 1,
    "refresh": 1,
    "read": 2,
    "beat": 1,
    "reclaim": 1,
    "detach": 0.3,
    "reject": 0.5,
    "adopt": 1,
    "strategy": 0.3,
}
DRIVERS_REASONS = [
    r for r in FinishReason if r not in (FinishReason.UNFIT, FinishReason.QUARANTINED)
]
Call = Callable[[RequestStore], Awaitable[Any]]


def without_clock(answer: Any) -> Any:
    """Ages, remaining times, markers and write counters are each store's own."""
    if isinstance(answer, DriverReply):
        entries = tuple(
            replace(e, age_ms=0, remaining_ms=e.remaining_ms and 1) for e in answer.window.entries
        )
        return replace(
            answer, window=replace(answer.window, entries=entries), marker="", write_counter=0
        )
    if isinstance(answer, AttachOutcome):
        answer = replace(answer, running=tuple(map(without_deadline, answer.running)))
    if isinstance(answer, ClaimOutcome):
        answer = replace(answer, claimed=tuple(map(without_deadline, answer.claimed)))
    if isinstance(answer, (AdoptOutcome, AttachOutcome, ClaimOutcome, CommitOutcome)):
        return replace(answer, reply=without_clock(answer.reply))
    if isinstance(answer, PoolTotals):
        return replace(answer, marker="", write_counter=0)
    return answer


def without_deadline(record: RunningRecord) -> RunningRecord:
    return replace(record, deadline_ms=min(record.deadline_ms, 1))


def expected_id(index: int) -> int:
    return index * 7919 % 50_000


class Caller:
    """Draws calls; remembers what was claimed: rows are current, replayed, stale or wrong."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.epochs = {"w0": 0, "w1": 0}
        self.num_workers = 2
        self.num_batches = 0
        self.request_ids = [f"r{i}" for i in range(14)]
        self.num_requests = 14
        self.records: list[tuple[str, RunningRecord]] = []  # with the worker's name
        self.log_lengths: dict[str, int] = {}

    def draw(self) -> tuple[str, Call]:
        (name,) = self.source.choices(list(WEIGHTS), list(WEIGHTS.values()))
        call: Call = getattr(self, f"draw_{name}")()
        return name, call

    def ids(self, most: int) -> list[str]:
        return self.source.sample(self.request_ids, self.source.randint(1, most))

    def fence(self) -> Fence:
        worker = self.source.choice(list(self.epochs))
        is_old = self.source.random() < 0.05
        return Fence(worker, self.epochs[worker] - is_old)

    def draw_watch_value(self) -> Watch:
        return Watch(
            replica_id=self.source.choice("ab"),
            nonce=self.source.choice(["n1", "n2"]),
            grace_ms=self.source.choice([-1, 0, 600_000, 600_000]),
        )

    def draw_submit(self) -> Call:
        request_id = self.source.choice(self.request_ids)
        request = make_new_request(
            request_id,
            payload=self.source.randbytes(4),
            payload_hash=b"other" if self.source.random() < 0.05 else None,
            priority=self.source.randint(-2, 2),
            num_prompt_tokens=self.source.randint(1, 20),
            timeout_ms=self.source.choice([0, 0, 0, 0, 1, 900_000]),
            watch=self.source.choice([None, self.draw_watch_value()]),
            tenant=self.source.choice("xyz"),
            queue_timeout_ms=self.source.choice([0, 70]),
            max_level_requests=self.source.choice([0, 0, 0, 2]),
            prefix_hashes=self.source.choice([(), (1, 2**32 - 1)]),
            max_tokens=self.source.choice([10, 50, 100]),
        )
        return lambda store: store.submit(request)

    def draw_attach(self) -> Call:
        worker, replica = self.source.choice(list(self.epochs)), self.source.choice("ab")
        self.epochs[worker] = max(1, self.epochs[worker] + self.source.choice([0, 1]))
        fence = Fence(worker, self.epochs[worker])
        capacity = self.source.choice([60, 115, 1_000])
        return lambda store: store.attach_driver(fence, replica, capacity)

    def draw_poll(self) -> Call:
        fence = self.fence()
        return lambda store: store.poll(fence)

    def draw_claim(self) -> Call:
        fence, ids, at_least = self.fence(), self.ids(6), self.source.choice([1, 1, 3])
        batch = self.source.choice([None, self.draw_batch()])

        async def claim(store: RequestStore) -> ClaimOutcome:
            outcome = await store.claim(fence, ids, at_least, batch)
            self.records += [(fence.incarnation, record) for record in outcome.claimed]
            return outcome

        return claim

    def draw_batch(self) -> BatchStart:
        self.num_batches += 1
        return BatchStart(
            batch_id=f"b{self.num_batches}",
            settings=self.source.choice(["{}", "x"]),
            is_held=self.source.random() < 0.7,
        )

    def draw_reject(self) -> Call:
        fence, ids = self.fence(), self.ids(1)
        return lambda store: store.reject(fence, ids)

    def draw_adopt(self) -> Call:
        """Whatever was claimed once, with more of its log, or less, or with another token."""
        fence = self.fence()
        chosen = self.source.sample(self.records, min(len(self.records), 2))
        records = [self.draw_presented(record) for _, record in chosen]
        return lambda store: store.adopt(fence, records)

    def draw_presented(self, record: RunningRecord) -> RunningRecord:
        length = self.log_lengths.get(record.request_id, 0) + self.source.choice([-1, 0, 0, 1, 2])
        ids = [expected_id(i) for i in range(max(0, length))]
        if ids and self.source.random() < 0.05:
            ids[-1] += 1
        is_unknown = self.source.random() < 0.1
        name = f"lost{len(self.records)}" if is_unknown else record.request_id
        counter = record.assignment.counter + self.source.choice([0, 0, 1])
        return replace(
            record,
            request_id=name,
            assignment=replace(record.assignment, counter=counter),
            log=tuple(ids),
            deadline_ms=0,
        )

    def draw_strategy(self) -> Call:
        text = self.source.choice(["", "static"])
        return lambda store: store.set_strategy(text)

    def draw_commit(self) -> Call:
        fence = self.fence()
        rows = []
        if self.records:
            worker = self.source.choice(self.records[-8:])[0]
            mine = [record for name, record in self.records[-30:] if name == worker]
            if worker in self.epochs and self.source.random() < 0.9:
                fence = Fence(worker, self.epochs[worker])
            rows = [self.draw_row(mine) for _ in range(self.source.randint(0, 5))]
        return lambda store: store.commit(fence, rows)

    def draw_row(self, records: list[RunningRecord]) -> CommitRow:
        record = self.source.choice(records[-8:])
        length = self.log_lengths.get(record.request_id, 0)
        index = max(0, length + self.source.choice([0, 0, 0, 0, 0, -1, -2, 1]))
        ids = [expected_id(index + i) for i in range(self.source.randint(0, 3))]
        if ids and self.source.random() < 0.03:
            ids[0] += 1
        finish = self.source.choice([None] * 9 + DRIVERS_REASONS)
        return CommitRow(
            request_id=record.request_id,
            assignment=record.assignment,
            index=index,
            token_ids=tuple(ids),
            finish=finish,
            visible_tokens=self.source.choice([-1, 0, 3]),
            stop_match=self.source.choice(["", "stop"]),
            num_cached_tokens=self.source.choice([-1, -1, 0, 16]),
        )

    def draw_requeue(self) -> Call:
        fence, ids = self.fence(), self.ids(4)
        return lambda store: store.requeue(fence, ids)

    def draw_cancel(self) -> Call:
        ids = self.ids(2)
        return lambda store: store.cancel(ids)

    def draw_watch(self) -> Call:
        request_id, watch = self.source.choice(self.request_ids), self.draw_watch_value()
        return lambda store: store.watch(request_id, watch)

    def draw_unwatch(self) -> Call:
        request_id, nonce = self.source.choice(self.request_ids), self.source.choice(["n1", "n2"])
        return lambda store: store.unwatch(request_id, nonce)

    def draw_refresh(self) -> Call:
        pairs = [(i, self.source.choice(["n1", "n2"])) for i in self.ids(5)]
        return lambda store: store.refresh_watches("a", pairs)

    def draw_read(self) -> Call:
        starts = [(i, self.source.randint(0, 4)) for i in (*self.ids(6), "unknown")]
        return lambda store: store.read_logs(starts)

    def draw_beat(self) -> Call:
        replica = self.source.choice("ab")
        return lambda store: store.beat(replica)

    def draw_reclaim(self) -> Call:
        worker = self.source.choice(list(self.epochs))
        off = self.source.choice([0, 1])

        async def reclaim(store: RequestStore) -> Any:
            seen = await store.read_worker_beat(worker) or (0, 0)
            return await store.reclaim(worker, seen[0], seen[1] + off), await store.list_workers()

        return reclaim

    def draw_detach(self) -> Call:
        fence = self.fence()
        return lambda store: store.detach_worker(fence)

    def replace_request(self, ended: str) -> None:
        if self.source.random() < 0.05:  # it is asked for a while longer
            self.request_ids.remove(ended)
            self.request_ids.append(f"r{self.num_requests}")
            self.num_requests += 1

    def replace_workers(self, alive: tuple[str, ...]) -> None:
        """Names are used up by tombstones."""
        for gone in [name for name, epoch in self.epochs.items() if epoch and name not in alive]:
            if self.source.random() < 0.2:
                del self.epochs[gone]
                self.epochs[f"w{self.num_workers}"] = 0
                self.num_workers += 1


async def answer_of(harness: StoreHarness, call: Call) -> Any:
    try:
        return await call(harness.store)
    except ServingError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(24))
async def test_the_model_answers_like_the_real_store(valkey_url: str, seed: int) -> None:
    caller = Caller(random.Random(seed))
    limits = {"claim_window": 5, "max_queued_requests": 9, "max_queued_tokens": 100}
    limits |= {"outage_ms": 3_600_000}  # a slow machine is none
    async with (
        open_model(seed, **limits) as model,
        open_redis(valkey_url, seed, **limits) as real,
    ):
        seen: set[str] = set()
        for step in range(300):
            name, call = caller.draw()
            expected, found = await answer_of(model, call), await answer_of(real, call)
            assert without_clock(found) == without_clock(expected), f"step {step}: {name}"
            if name == "commit" and not isinstance(expected, type):
                seen.update(expected.statuses)
            for slice_ in await model.store.read_logs([(i, 0) for i in caller.request_ids]):
                if slice_ is not None:
                    seen.add(slice_.status)
                    caller.log_lengths[slice_.request_id] = slice_.num_output_tokens
                    if slice_.status not in ("waiting", "running"):
                        caller.replace_request(slice_.request_id)
            caller.replace_workers(await model.store.list_workers())
            if name in LAPSING:
                await model.pass_time(2)
                await real.pass_time(2)
        reached = {"running", "finished", "cancelled", "expired", "appended", "replayed", "stale"}
        assert seen >= reached, f"the calls reach only {seen}"
