"""Who drives a worker: rendezvous hashing over the replicas that live."""

from collections import Counter

from scheduler_service.replica_beats import PassedOver, ReplicaBeats, driver_ranking


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


def test_a_replica_lives_while_its_beat_moves():
    beats = ReplicaBeats("me", silence_s=2.0)
    for at_s in (0.0, 0.5, 1.0):
        beats.note({"other": int(at_s * 2)}, at_s)

    assert beats.live(1.0) == ["me", "other"]
    assert beats.live(2.9) == ["me", "other"]
    assert beats.live(3.0) == ["me"]


def test_one_that_has_lost_a_worker_is_doubted_until_its_beat_moves():
    beats = ReplicaBeats("me", silence_s=2.0)
    beats.note({"other": 1}, 0.0)
    beats.note({"other": 2}, 0.5)

    beats.doubt("other", 0.6)
    assert beats.live(0.6) == ["me"]
    beats.note({"other": 3}, 1.0)

    assert beats.live(1.0) == ["me", "other"]
    assert beats.live_for_s("other", 1.0) == 0.0


def test_one_that_did_not_take_a_worker_is_passed_over_for_a_while():
    passed_over = PassedOver(60.0)
    passed_over.note("w", ["a", "b"], 10.0)
    passed_over.note("v", ["a"], 15.0)

    assert passed_over.of("w", 69.9) == {"a", "b"}
    assert passed_over.of("w", 70.0) == set()
    assert passed_over.of("v", 70.0) == {"a"}
