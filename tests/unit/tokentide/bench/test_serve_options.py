"""From flags to options: what contradicts itself is refused with one line."""

from pathlib import Path

import pytest

from shared.errors import ServingError
from tokentide.bench.serve import NUM_ARRIVALS, Case, requests_of
from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.workload import WorkRequest, write_workload

PROFILE = "l4-llama-3.1-8b"


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


def test_a_files_requests_are_as_many_as_it_has(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    write_workload(path, [WorkRequest(prompt="a", max_tokens=1)])

    with pytest.raises(ValueError, match="its own requests"):
        serve_options(make_flags(workload=path, num_requests=3))


def test_flags_of_services_are_split_as_a_shell_does() -> None:
    options = serve_options(make_flags(scheduler_args="--token-budget 64 --pool 'a b'"))

    assert options.target.scheduler_args == ("--token-budget", "64", "--pool", "a b")


@pytest.mark.parametrize(
    ("fields", "args"),
    [
        ({}, ("--kv-memory", "1GiB")),
        ({"kv_memory": "3GiB"}, ("--kv-memory", "3GiB")),
        ({"worker_args": "--kv-memory 2GiB"}, ("--kv-memory", "2GiB")),
        ({"worker_args": f"--simulate {PROFILE}"}, ("--simulate", PROFILE)),
        (
            {"worker_args": f"--simulate {PROFILE}", "kv_memory": "2GiB"},
            ("--kv-memory", "2GiB", "--simulate", PROFILE),
        ),
    ],
)
def test_a_simulated_worker_has_its_profiles_memory_unless_said(
    fields: dict[str, object], args: tuple[str, ...]
) -> None:
    target = serve_options(make_flags(**fields)).target

    assert target.worker_args == args
    assert target.simulate == (PROFILE if "--simulate" in args else "")


def test_arrivals_are_enough_for_percentiles_unless_said() -> None:
    arrivals = Case(index=0, concurrency=None, repeat=0)

    assert len(requests_of(arrivals, serve_options(make_flags(rate=5.0)))) == NUM_ARRIVALS
    few = serve_options(make_flags(rate=5.0, num_requests=3))
    assert len(requests_of(arrivals, few)) == 3
    at_once = Case(index=0, concurrency=8, repeat=0)
    assert len(requests_of(at_once, serve_options(make_flags()))) == 8


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kv_memory": "lots"}, "no amount of memory"),
        ({"model": Path("/nonexistent")}, "no such folder"),
        ({"worker_args": "--nope 1"}, "nope"),
        ({"worker_args": f"--simulate {PROFILE} --weights int8"}, "--weights: no effect"),
        ({"worker_args": "--simulate nowhere"}, "nowhere"),
        ({"scheduler_args": "--token-budget x"}, "token_budget"),
    ],
)
def test_what_a_service_would_refuse_is_told_before_anything_starts(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ServingError, match=message):
        serve_options(make_flags(**fields))


@pytest.mark.parametrize(
    "spec", ["exponential:60", "fixed", "uniform:3", "lognormal:1:2", "normal:3", "fixed:x", ""]
)
def test_a_wrong_distribution_is_told_without_how_python_failed_at_it(spec: str) -> None:
    with pytest.raises(ValueError, match=r"--output: .* is no length distribution") as told:
        serve_options(make_flags(output=spec))

    assert "expected" not in str(told.value) and "invalid literal" not in str(told.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": 2.0, "concurrency": "4"}, "leave out --concurrency"),
        ({"burstiness": 0.5}, "of the arrivals of --rate"),
        ({"endpoint": "h:1", "kv_memory": "1GiB"}, "local stack"),
        ({"concurrency": "1,x"}, "list of numbers"),
        ({"concurrency": "0"}, "above 0"),
        ({"prompt": "fixed:0"}, "no length distribution"),
        ({"rate": -1.0}, "rate"),
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
