"""Keeps books of its own of what the store granted and took, call by call, and says where that was wrong.

It sees each call at the moment it happens, with its answer, and knows nothing of how the store works: a fence that
does not hold is noticed though the tokens come out right by luck.
"""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler_service.store.values import AdoptStatus, Fence, RowStatus, RunningRecord
from shared.types import Assignment

MOST_CRASHES = 5  # two in company, three alone: then a request is quarantined
LEAST_STILL_S = 0.55  # a beat that stands still for less is never taken for dead
FENCED = ("poll", "claim", "commit", "requeue", "reject", "adopt")


@dataclass(slots=True)
class WorkerBook:
    epoch: int
    replica_id: str
    beat: int = 0
    beat_s: float = 0.0  # when it was raised
    is_dead: bool = False


@dataclass(slots=True)
class RequestBook:
    worker: str = ""
    assignment: Assignment | None = None
    log: list[int] = field(default_factory=list)
    num_crashes: int = 0  # since it last got a token


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class StoreWitness:
    def __init__(self, violate: Callable[[str, str], None]) -> None:
        self._violate = violate
        self.workers: dict[str, WorkerBook] = {}
        self.requests: dict[str, RequestBook] = {}
        # All outputs that were ever complete: what the store loses may come out otherwise next time.
        self.complete: dict[str, list[list[int]]] = {}

    def saved(self) -> Any:
        return copy.deepcopy((self.workers, self.requests))

    def restore(self, state: Any) -> None:
        self.workers, self.requests = copy.deepcopy(state)

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """A call that succeeded."""
        if name in FENCED:
            self._check_fence(name, args[0])
        note = getattr(self, f"_on_{name}", None)
        if note is not None:
            note(*args, answer=answer)

    # -- fences ------------------------------------------------------------------------------------

    def _check_fence(self, name: str, fence: Fence) -> None:
        worker = self.workers.get(fence.incarnation)
        if worker is None:
            self._violate("fence", f"{name} by {fence}, which was never granted")
        elif worker.is_dead or worker.epoch != fence.epoch:
            self._violate("fence", f"{name} by {fence}, though {worker} is current")

    def _on_attach_driver(self, fence: Fence, replica_id: str, _: int, *, answer: Any) -> None:
        known = self.workers.get(fence.incarnation)
        if known is not None:
            is_repeat = (known.epoch, known.replica_id) == (fence.epoch, replica_id)
            if known.is_dead or not (is_repeat or known.epoch < fence.epoch):
                self._violate("fence", f"{fence} granted to {replica_id} over {known}")
        beat = known.beat if known is not None else 0
        self.workers[fence.incarnation] = WorkerBook(fence.epoch, replica_id, beat + 1, _now_s())

    # -- requests ----------------------------------------------------------------------------------

    def _on_claim(self, fence: Fence, *_: Any, answer: Any) -> None:
        for record in answer.claimed:
            book = self._book(record.request_id)
            if book.worker and book.worker != fence.incarnation:
                self._violate("I2", f"{record.request_id} claimed from under {book.worker}")
            book.worker, book.assignment = fence.incarnation, record.assignment

    def _on_commit(self, fence: Fence, rows: Any, *, answer: Any) -> None:
        worker = self.workers[fence.incarnation]
        worker.beat, worker.beat_s = worker.beat + 1, _now_s()
        for row, status in zip(rows, answer.statuses, strict=True):
            book = self._book(row.request_id)
            if status in (RowStatus.APPENDED, RowStatus.REPLAYED):
                if (book.worker, book.assignment) != (fence.incarnation, row.assignment):
                    what = f"{row.assignment} of {fence.incarnation} taken, {book} is current"
                    self._violate("assignment", f"{row.request_id}: {what}")
                self._append(row.request_id, book, row.index, row.token_ids)
                if row.finish is not None:
                    book.worker = ""
                    self.complete.setdefault(row.request_id, []).append(list(book.log))
            elif status == RowStatus.DATA_LOSS:
                book.worker = ""

    def _append(self, request_id: str, book: RequestBook, index: int, ids: Any) -> None:
        if index > len(book.log):
            self._violate("I5", f"{request_id}: {index} appended to a log of {len(book.log)}")
            return
        known = book.log[index : index + len(ids)]
        if list(ids[: len(known)]) != known:
            self._violate("I5", f"{request_id}: other values from {index} on were taken")
        if len(ids) > len(known):
            book.log += ids[len(known) :]
            book.num_crashes = 0

    def _on_adopt(self, fence: Fence, records: Any, *, answer: Any) -> None:
        for record, status in zip(records, answer.statuses, strict=True):
            book = self._book(record.request_id)
            if status == AdoptStatus.ADOPTED:
                if book.worker and book.assignment and not _is_later(record, fence, book):
                    what = f"{record.assignment} of {fence.incarnation} adopted over {book}"
                    self._violate("assignment", f"{record.request_id}: {what}")
                book.worker, book.assignment = fence.incarnation, record.assignment
                self._append(record.request_id, book, 0, record.log)
            elif status == AdoptStatus.DATA_LOSS:
                book.worker = ""

    def _on_requeue(self, fence: Fence, request_ids: Any, *, answer: Any) -> None:
        for request_id in request_ids:
            book = self._book(request_id)
            if book.worker == fence.incarnation:
                book.worker = ""

    # -- workers -----------------------------------------------------------------------------------

    def _on_reclaim(self, incarnation: str, epoch: int, beat: int, *, answer: Any) -> None:
        worker = self.workers.get(incarnation)
        if answer is None or worker is None or worker.is_dead:
            return
        if (worker.epoch, worker.beat) != (epoch, beat):
            self._violate("reclaim", f"{incarnation} at {(epoch, beat)}, though it is {worker}")
        if _now_s() - worker.beat_s < LEAST_STILL_S:
            self._violate("reclaim", f"{incarnation}, whose beat went on a moment ago: {worker}")
        self._leave(incarnation, num_crashes=1)

    def _on_detach_worker(self, fence: Fence, *, answer: Any) -> None:
        if fence.incarnation in self.workers:
            self._leave(fence.incarnation, num_crashes=0)

    def _leave(self, incarnation: str, num_crashes: int) -> None:
        self.workers[incarnation].is_dead = True
        for request_id, book in self.requests.items():
            if book.worker == incarnation:
                book.worker = ""
                book.num_crashes += num_crashes
                if book.num_crashes > MOST_CRASHES:
                    crashes = f"{book.num_crashes} crashes without a token"
                    self._violate("poison", f"{request_id}: {crashes}")

    def _book(self, request_id: str) -> RequestBook:
        return self.requests.setdefault(request_id, RequestBook())


def _is_later(record: RunningRecord, fence: Fence, book: RequestBook) -> bool:
    """Whether this assignment may take the request from the one in the book."""
    assert book.assignment is not None
    mine, booked = record.assignment.counter, book.assignment.counter
    return mine > booked or (mine == booked and book.worker == fence.incarnation)
