"""Are the ports that a local stack will want free? Asked first: a model takes long to load."""

import socket
from dataclasses import dataclass

from shared.errors import SettingError


@dataclass(frozen=True, slots=True)
class PortRange:
    """`number` ports from `first` on, as a flag asks for them; `first` 0 = any free ones."""

    flag: str
    first: int
    number: int = 1

    @property
    def ports(self) -> range:
        return range(self.first, self.first + self.number) if self.first else range(0)


def check_ports(host: str, wanted: list[PortRange]) -> None:
    """Raises SettingError for the first that is taken, names no port, or is asked for twice."""
    _check_numbers(wanted)
    for each in wanted:
        for port in each.ports:
            if not _is_free(host, port):
                raise SettingError(
                    f"port {port} on {host} is in use or not ours to bind:"
                    f" choose another with {each.flag} (0 = any)"
                )


def _check_numbers(wanted: list[PortRange]) -> None:
    asked: dict[int, str] = {}
    for each in wanted:
        for port in each.ports:
            if not 0 < port < 2**16:
                raise SettingError(f"port {port} ({each.flag}) does not exist: at most 65535")
            if port in asked:
                raise SettingError(f"port {port} is asked for by {asked[port]} and {each.flag}")
            asked[port] = each.flag


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # A port that a connection of an ended stack still lingers on can be bound, as the services do.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
