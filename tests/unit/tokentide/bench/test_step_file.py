"""Steps that a scheduler wrote down become the workload that it served."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.step_file import NUM_STEPS_RUNNING, read_step_workload, workload_of_steps

STEP_S = 0.1


def step(
    at_s: float,
    *scheduled: tuple[str, bool],
    admitted: list[dict[str, Any]] | None = None,
    ended: dict[str, int] | None = None,
) -> str:
    """`scheduled`: requests, and whether they decode."""
    line = {
        "at_s": at_s,
        "worker": "w",
        "timings": {"total_ns": int(STEP_S * 1e9)},
        "scheduled": [
            {"request_id": name, "num_tokens": 1, "is_decode": is_decode, "is_admitted": False}
            for name, is_decode in scheduled
        ],
        "admitted": admitted or [],
        "ended": [
            {"request_id": name, "num_output_tokens": number, "reason": "length"}
            for name, number in (ended or {}).items()
        ],
    }
    return json.dumps(line) + "\n"


def admit(request_id: str, **fields: Any) -> dict[str, Any]:
    sizes = {"num_prompt_tokens": 20, "num_output_tokens": 0, "max_tokens": 50, "age_ms": 0}
    return {"request_id": request_id, **sizes, **fields}


def test_requests_arrive_as_they_did_with_the_lengths_that_they_had() -> None:
    lines = [
        step(1000.5, ("a", False), admitted=[admit("a", age_ms=300)]),
        step(1000.7, ("a", True), ("b", False), admitted=[admit("b")], ended={"a": 2}),
        step(1000.8, ("b", True), ended={"b": 7}),
    ]

    first, second = workload_of_steps(lines)

    assert (first.arrival_s, len(first.prompt), first.max_tokens) == (0, 20, 2)
    assert second.arrival_s == pytest.approx(0.5)
    assert second.max_tokens == 7
    assert first.ignore_eos and second.ignore_eos


def test_prompts_share_no_beginning_and_are_the_same_each_time() -> None:
    lines = [step(1, ("a", False), ("b", False), admitted=[admit("a"), admit("b")])]

    first, second = workload_of_steps(lines)

    assert first.prompt[:4] != second.prompt[:4]
    assert workload_of_steps(lines) == [first, second]
    assert max(workload_of_steps(lines, vocabulary=30)[0].prompt) < 30


def test_one_that_was_preempted_counts_once_at_its_first_arrival() -> None:
    lines = [
        step(10.0, ("a", False), admitted=[admit("a", age_ms=100)]),
        step(10.1, ("a", True)),
        step(10.5, ("a", False), admitted=[admit("a", num_output_tokens=2, age_ms=600)]),
        step(10.6, ("a", True), ended={"a": 4}),
    ]

    (request,) = workload_of_steps(lines)

    assert (request.arrival_s, request.max_tokens) == (0, 4)


def test_one_that_left_without_an_end_has_what_was_sampled_for_it() -> None:
    others = [step(11 + n * STEP_S, ("b", True)) for n in range(NUM_STEPS_RUNNING)]
    lines = [
        step(10.8, ("a", False), ("b", False), admitted=[admit("a"), admit("b", max_tokens=60)]),
        step(10.9, ("a", True), ("b", True)),
        *others,
    ]

    gone, running = workload_of_steps(lines)

    assert gone.max_tokens == 2
    assert running.max_tokens == 60, "it still ran: all that it may have"


def test_the_older_file_comes_first_and_cut_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    whole = step(10.0, ("a", False), admitted=[admit("a")])
    path.with_name("steps.jsonl.1").write_text(whole + whole[:30])
    path.write_text(step(10.2, ("a", True), ended={"a": 2}) + '{"at_s": 10.3, "wor')

    (request,) = read_step_workload(path)

    assert request.max_tokens == 2


def test_a_killed_schedulers_last_line_runs_into_its_successors_first() -> None:
    whole = step(10.0, ("a", False), admitted=[admit("a")])

    assert len(workload_of_steps([whole[:30] + whole, whole])) == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no steps"),
        (["nonsense\n"], "no steps"),
        (["{}\n"], "line 1 is no step"),
        (["3\n"], "line 1 is no step"),
        ([step(1.0)], "nobody was admitted"),
        ([step(float("nan"), admitted=[admit("a")])], "line 1 is no step: at_s"),
        ([step(1e300, admitted=[admit("a")])], "line 1 is no step: at_s"),
        ([step(1.0, admitted=[admit("a", num_prompt_tokens=-3)])], "num_prompt_tokens"),
        ([step(1.0, admitted=[admit("a", num_prompt_tokens=0)])], "num_prompt_tokens"),
        ([step(1.0, admitted=[admit("a", num_prompt_tokens=10**12)])], "num_prompt_tokens"),
        ([step(1.0, admitted=[admit("a", num_prompt_tokens="20")])], "num_prompt_tokens"),
        ([step(1.0, admitted=[admit("a", max_tokens=2.5)])], "max_tokens"),
        ([step(1.0, admitted=[admit("a", age_ms=float("inf"))])], "age_ms"),
        ([step(1.0, admitted=[admit("a") | {"request_id": ["a"]}])], "request_id"),
        ([step(1.0, admitted=[admit("a")], ended={"a": -1})], "num_output_tokens"),
        (['{"worker": "w", "timings": 3}\n'], "timings"),
        (['{"worker": ["w"]}\n'], "worker"),
    ],
)
def test_what_is_no_step_file_is_told(lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload_of_steps(lines)


def test_every_benchmark_of_loads_takes_it_with_its_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(step(10.0, ("a", False), admitted=[admit("a")], ended={"a": 1}))

    options = serve_options(ServeFlags(steps=path, vocabulary=100))

    assert [request.max_tokens for request in options.requests] == [1]
    assert options.is_open_loop


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": Path("/nowhere")}, "No such file"),
        ({"steps": Path("x"), "rate": 1.0}, "its own arrivals"),
        ({"steps": Path("x"), "workload": Path("y")}, "its own requests"),
    ],
)
def test_what_contradicts_a_step_file_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serve_options(ServeFlags(vocabulary=100, **fields))
