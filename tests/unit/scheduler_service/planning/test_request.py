"""The table of statuses, walked pair by pair."""

from itertools import product

import pytest

from scheduler_service.planning.request import (
    TERMINAL,
    TRANSITIONS,
    IllegalTransition,
    RequestStatus,
    move,
)


@pytest.mark.parametrize(("status", "to"), list(product(RequestStatus, RequestStatus)))
def test_a_status_moves_only_along_the_table(status: RequestStatus, to: RequestStatus) -> None:
    if to in TRANSITIONS[status]:
        assert move("r", status, to) is to
    else:
        with pytest.raises(IllegalTransition, match=f"request r: {status} cannot become {to}"):
            move("r", status, to)


def test_every_status_has_its_row() -> None:
    assert set(TRANSITIONS) == set(RequestStatus)


def test_only_waiting_and_running_are_not_terminal() -> None:
    assert set(RequestStatus) - TERMINAL == {RequestStatus.WAITING, RequestStatus.RUNNING}


def test_every_terminal_status_can_be_reached_from_running() -> None:
    assert TERMINAL.issubset(TRANSITIONS[RequestStatus.RUNNING])


def test_a_waiting_request_never_finishes() -> None:
    assert RequestStatus.FINISHED not in TRANSITIONS[RequestStatus.WAITING]
