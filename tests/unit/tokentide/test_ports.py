"""What is said of ports before anything is started."""

import socket
from collections.abc import Iterator

import pytest

from shared.errors import SettingError
from tokentide.ports import PortRange, check_ports

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named_with_the_flag_that_moves_it(taken: int) -> None:
    with pytest.raises(SettingError, match=f"port {taken} on {HOST} .* with --worker-port"):
        check_ports(HOST, [PortRange("--port", 0), PortRange("--worker-port", taken)])


def test_a_range_counts_up_and_any_port_is_no_port() -> None:
    assert list(PortRange("--port", 7, 2).ports) == [7, 8]
    assert list(PortRange("--port", 0, 2).ports) == []


def test_a_port_wanted_twice_names_both_flags() -> None:
    with pytest.raises(SettingError, match="by --port and --operations-port"):
        check_ports(HOST, [PortRange("--port", 6000, 3), PortRange("--operations-port", 6002)])


def test_a_port_beyond_the_last_one() -> None:
    with pytest.raises(SettingError, match=r"65536 \(--operations-port\) does not exist"):
        check_ports(HOST, [PortRange("--operations-port", 65536)])


def test_any_free_port_is_free() -> None:
    check_ports(HOST, [PortRange("--port", 0, 9), PortRange("--worker-port", 0, 9)])
