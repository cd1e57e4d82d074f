"""Which replica is next: every address behind a DNS name, as they come and go."""

import pytest

from tokentide import replicas as module
from tokentide.replicas import Replicas, is_dns_name


class Names:
    """A DNS server: addresses by name, changed by the test."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = addresses
        self.num_asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.num_asked += 1
        if host not in self.addresses:
            raise OSError("no such name")
        return [f"{ip}:{port}" for ip in self.addresses[host]]


@pytest.fixture
def grow_old(monkeypatch: pytest.MonkeyPatch):
    """What has been looked up is old from now on."""
    return lambda: monkeypatch.setattr(module, "REFRESH_S", 0.0)


async def take(replicas: Replicas, number: int) -> set[str]:
    return {(await replicas.take()).address for _ in range(number)}


async def test_each_address_behind_a_name_has_its_turn():
    replicas = Replicas(["scheduler:50051"], look_up=Names(scheduler=["10.0.0.1", "10.0.0.2"]))

    taken = [(await replicas.take()).address for _ in range(4)]

    assert sorted(taken[:2]) == ["10.0.0.1:50051", "10.0.0.2:50051"]
    assert taken[2:] == taken[:2]


async def test_addresses_are_looked_up_again_once_they_are_old(grow_old):
    names = Names(scheduler=["10.0.0.1"])
    replicas = Replicas(["scheduler:50051"], look_up=names)
    await take(replicas, 5)

    names.addresses["scheduler"] = ["10.0.0.2", "10.0.0.3"]
    unchanged = await take(replicas, 2)
    assert names.num_asked == 1
    grow_old()
    changed = await take(replicas, 2)

    assert unchanged == {"10.0.0.1:50051"}
    assert changed == {"10.0.0.2:50051", "10.0.0.3:50051"}


async def test_a_channel_that_is_in_use_outlives_its_address(grow_old):
    names = Names(scheduler=["10.0.0.1"])
    replicas = Replicas(["scheduler:50051"], look_up=names)
    old = await replicas.take()

    with old.in_call():
        names.addresses["scheduler"] = ["10.0.0.2"]
        grow_old()
        await replicas.take()
        assert old.address in replicas._replicas
    grow_old()
    await replicas.take()

    assert list(replicas._replicas) == ["10.0.0.2:50051"]


async def test_a_name_without_an_answer_keeps_what_was_known(grow_old):
    names = Names(scheduler=["10.0.0.1"])
    replicas = Replicas(["scheduler:50051", "other:50051"], look_up=names)

    before = await take(replicas, 2)
    names.addresses.clear()
    grow_old()
    after = await take(replicas, 2)

    assert before == after == {"10.0.0.1:50051", "other:50051"}


@pytest.mark.parametrize(
    ("endpoint", "is_name"),
    [
        ("scheduler:50051", True),
        ("scheduler.example.org:50051", True),
        ("localhost:50051", False),
        ("127.0.0.1:50051", False),
        ("[::1]:50051", False),
        ("unix:/run/tokentide.sock", False),
        ("ipv4:10.0.0.1:50051", False),
    ],
)
def test_what_is_looked_up(endpoint, is_name):
    assert is_dns_name(endpoint) is is_name


async def test_a_name_may_come_in_grpcs_own_form():
    replicas = Replicas(["dns:///scheduler:50051"], look_up=Names(scheduler=["10.0.0.1"]))

    assert await take(replicas, 2) == {"10.0.0.1:50051"}


async def test_one_that_has_just_failed_is_not_the_next_choice():
    replicas = Replicas(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"])
    failed = await replicas.take()

    failed.avoid()

    assert failed.address not in await take(replicas, 6)


async def test_where_all_have_failed_they_have_their_turns():
    replicas = Replicas(["10.0.0.1:1", "10.0.0.2:1"])
    for _ in range(2):
        (await replicas.take()).avoid()

    assert len(await take(replicas, 4)) == 2
