"""From flags to options: what contradicts itself is refused with one line."""

from pathlib import Path

import pytest

from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.workload import WorkRequest, write_workload


def make_flags(**fields: object) -> ServeFlags:
    values: dict[str, object] = {"vocabulary": 100, **fields}
    return ServeFlags(**values)  # type: ignore[arg-type]


def test_several_concurrencies_run_in_turn() -> None:
    options = serve_options(make_flags(concurrency="1,8, 32"))

    assert options.concurrencies == (1, 8, 32)
    assert not options.is_open_loop


def test_a_rate_makes_an_open_loop() -> None:
    assert serve_options(make_flags(rate=2.0)).is_open_loop


def test_a_file_with_arrivals_makes_an_open_loop_and_one_without_does_not(tmp_path: Path) -> None:
    at_once, spread = tmp_path / "at-once.jsonl", tmp_path / "spread.jsonl"
    write_workload(at_once, [WorkRequest(prompt="a", max_tokens=1)])
    write_workload(spread, [WorkRequest(prompt="a", max_tokens=1, arrival_s=2.0)])

    assert not serve_options(make_flags(workload=at_once)).is_open_loop
    assert serve_options(make_flags(workload=spread)).is_open_loop


def test_flags_of_services_are_split_as_a_shell_does() -> None:
    options = serve_options(make_flags(scheduler_args="--token-budget 64 --pool 'a b'"))

    assert options.target.scheduler_args == ("--token-budget", "64", "--pool", "a b")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"concurrency": "1,x"}, "list of numbers"),
        ({"concurrency": "0"}, "above 0"),
        ({"prompt": "fixed:0"}, "no length distribution"),
        ({"rate": -1.0}, "above 0"),
        ({"operations": "h:1"}, "goes with --endpoint"),
        ({"endpoint": "h:1", "scheduler_args": "--x"}, "local stack"),
        ({"compare_transformers": True, "temperature": 1.0}, "greedy"),
        ({"workload": Path("/nowhere.jsonl")}, "No such file"),
        ({"workload": Path("x"), "rate": 1.0}, "its own arrivals"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serve_options(make_flags(**fields))
