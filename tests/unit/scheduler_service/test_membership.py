"""Who drives a worker: rendezvous hashing."""

from collections import Counter

from scheduler_service.replica_beats import driver_ranking


def test_every_replica_ranks_alike():
    replicas = ["a", "b", "c"]

    assert driver_ranking(replicas, "w") == driver_ranking(replicas[::-1], "w")


def test_workers_are_spread_over_replicas():
    replicas = [f"replica-{n}" for n in range(4)]
    preferred = Counter(driver_ranking(replicas, f"worker-{n}")[0] for n in range(400))

    assert all(60 < preferred[r] < 140 for r in replicas)


def test_a_replica_that_goes_moves_only_its_own_workers():
    replicas = [f"replica-{n}" for n in range(4)]
    rest = replicas[1:]

    for n in range(100):
        before = driver_ranking(replicas, f"worker-{n}")[0]
        after = driver_ranking(rest, f"worker-{n}")[0]
        assert after == before or before == replicas[0]
