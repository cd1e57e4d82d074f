"""The simulated queue: rank order, claims, rejects."""

from simulated_loads import make_work

from tokentide.simulator.queue import SimulatedQueue
from tokentide.simulator.requests import SimulatedRequest


def make_queue(number: int, window_size: int = 3) -> tuple[SimulatedQueue, list[SimulatedRequest]]:
    queue = SimulatedQueue(window_size)
    requests = [SimulatedRequest.of_work(make_work(n), n, 0.0, 0) for n in range(number)]
    for request in requests:
        queue.add(request)
    return queue, requests


def ids_of(queue: SimulatedQueue) -> list[str]:
    return [waiting.request_id for waiting in queue.window(0)]


def test_the_window_shows_the_first_in_rank_order():
    queue, _ = make_queue(5)

    assert ids_of(queue) == ["0", "1", "2"]
    assert len(queue) == 5


def test_one_that_comes_back_takes_its_old_rank():
    queue, requests = make_queue(3)
    queue.claim(["0"], 1)

    queue.add(requests[0])

    assert ids_of(queue) == ["0", "1", "2"]


def test_claims_are_for_who_comes_first():
    queue, _ = make_queue(3)

    assert [r.request_id for r in queue.claim(["0", "1"], 1)] == ["0", "1"]
    assert [r.request_id for r in queue.claim(["1", "2"], 1)] == ["2"]


def test_a_claim_of_too_few_takes_none():
    queue, _ = make_queue(2)

    assert queue.claim(["0", "1", "2"], 3) == []
    assert ids_of(queue) == ["0", "1"]


def test_an_age_counts_from_the_submit():
    queue, requests = make_queue(1)
    requests[0].submitted_ns = 40_000_000

    assert queue.window(100)[0].age_ms == 60


def test_the_version_changes_with_the_window_only():
    queue, _ = make_queue(2)
    version = queue.version

    queue.claim(["9"], 1)
    assert queue.version == version
    queue.reject(["0"])
    assert queue.version != version
