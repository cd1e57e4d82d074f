"""Titles: a simulated device is called so, and nobody else's machine has our cores."""

import pytest

from tokentide.bench.subject import few_note, load_text, machine_of, subject


@pytest.mark.parametrize(
    ("simulate", "endpoints", "told"),
    [
        ("", (), "m on 2 cores"),
        ("l4", (), "m, simulated: l4"),
        ("", ("h:1", "h:2"), "m at h:1, h:2"),
    ],
)
def test_a_subject_says_where(simulate: str, endpoints: tuple[str, ...], told: str) -> None:
    assert subject("m", simulate=simulate, endpoints=endpoints, cores=2) == told


def test_the_host_of_a_simulation_is_no_machine_that_was_measured() -> None:
    report = {"machine": {"cpu": "c", "cores": 2}, "simulated": "l4"}

    assert machine_of(report) == {"simulated": "l4", "host cpu": "c", "host cores": 2}
    assert machine_of(report | {"simulated": None}) == {"cpu": "c", "cores": 2}


def test_the_load_is_told_where_it_is_known() -> None:
    runs = [{"load_average_before": [0.5, 1, 1]}, {"load_average": [1.25, 1, 1]}]

    told = load_text(runs, {"load_average_after": [2.0, 1, 1]})
    assert told == "load average 0.5 to 1.25 before the runs, 2 after"
    assert load_text([{}], {"load_average_after": [2.0, 1, 1]}) == ""


def test_a_p99_of_few_is_called_what_it_is() -> None:
    assert "of 32 requests" in few_note(32)
    assert few_note(100) == ""
