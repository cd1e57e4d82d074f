"""Workloads: drawn from a seed, written to a file and read back."""

from dataclasses import replace
from pathlib import Path

import pytest

from shared.lengths import Lengths
from tokentide.bench.workload import (
    MAX_BURSTINESS,
    MAX_RATE,
    MIN_BURSTINESS,
    MIN_RANDOM_ID,
    MIN_RATE,
    WorkloadSpec,
    WorkRequest,
    make_workload,
    read_workload,
    write_workload,
)

SPEC = WorkloadSpec(
    num_requests=40,
    prompt_lengths=Lengths.parse("uniform:3-9"),
    output_lengths=Lengths.parse("uniform:1-5"),
    vocabulary=100,
    seed=7,
)


def test_the_same_seed_gives_the_same_requests() -> None:
    assert make_workload(SPEC) == make_workload(SPEC)
    assert make_workload(SPEC) != make_workload(replace(SPEC, seed=8))


def test_prompts_are_token_ids_of_the_vocabulary_with_lengths_as_drawn() -> None:
    requests = make_workload(SPEC)

    assert {len(request.prompt) for request in requests} <= set(range(3, 10))
    assert {request.max_tokens for request in requests} <= set(range(1, 6))
    ids = {token for request in requests for token in request.prompt}
    assert ids <= set(range(MIN_RANDOM_ID, 100))


def test_other_arrivals_leave_lengths_and_contents_alone() -> None:
    at_once, spread = make_workload(SPEC), make_workload(replace(SPEC, rate=5.0))

    assert [r.prompt for r in at_once] == [r.prompt for r in spread]
    assert [r.max_tokens for r in at_once] == [r.max_tokens for r in spread]
    assert {r.arrival_s for r in at_once} == {0.0}


@pytest.mark.parametrize(("burstiness", "variation"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_gaps_have_the_mean_of_the_rate_and_the_variation_of_the_burstiness(
    burstiness: float, variation: float
) -> None:
    spec = replace(SPEC, num_requests=6000, rate=20.0, burstiness=burstiness)

    times = [request.arrival_s for request in make_workload(spec)]

    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 20, rel=0.1)
    assert deviation / mean == pytest.approx(variation, rel=0.1)


def test_a_shared_prefix_begins_every_prompt_and_comes_on_top_of_its_own_length() -> None:
    requests = make_workload(replace(SPEC, shared_prefix=12))

    assert len({request.prompt[:12] for request in requests}) == 1
    assert {len(request.prompt) for request in requests} <= set(range(15, 22))


def test_text_prompts_are_words() -> None:
    request = make_workload(replace(SPEC, text=True))[0]

    assert isinstance(request.prompt, str)
    assert 3 <= len(request.prompt.split()) <= 9


def test_a_workload_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "workload.jsonl"
    text = WorkRequest(prompt="Hello", max_tokens=3, ignore_eos=False, arrival_s=0.5)
    requests = sorted([*make_workload(replace(SPEC, rate=3.0)), text], key=lambda r: r.arrival_s)

    write_workload(path, requests)

    read = read_workload(path)
    assert [replace(r, arrival_s=0.0) for r in read] == [
        replace(r, arrival_s=0.0) for r in requests
    ]
    assert [r.arrival_s for r in read] == pytest.approx([r.arrival_s for r in requests], abs=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"prompt": "a"}',
        '{"prompt": "a", "prompt_ids": [1], "max_tokens": 1}',
        '{"max_tokens": 1}',
        '{"prompt": "a", "max_tokens": 1, "tokens": 3}',
        "[1, 2]",
        "[" * 100_000,
        '{"prompt": "", "max_tokens": 3}',
        '{"prompt": "  ", "max_tokens": 3}',
        '{"prompt": 3, "max_tokens": 3}',
        '{"prompt": "\\ud800", "max_tokens": 3}',
        '{"prompt_ids": [], "max_tokens": 3}',
        '{"prompt_ids": "12", "max_tokens": 3}',
        '{"prompt_ids": [-5], "max_tokens": 3}',
        '{"prompt_ids": [1e5, 2], "max_tokens": 3}',
        '{"prompt_ids": [2147483647], "max_tokens": 3}',
        '{"prompt": "a", "max_tokens": -1}',
        '{"prompt": "a", "max_tokens": 0}',
        '{"prompt": "a", "max_tokens": 2.5}',
        '{"prompt": "a", "max_tokens": true}',
        '{"prompt": "a", "max_tokens": 3, "ignore_eos": 1}',
        '{"prompt": "a", "max_tokens": 3, "arrival_s": -10}',
        '{"prompt": "a", "max_tokens": 3, "arrival_s": 1e400}',
        '{"prompt": "a", "max_tokens": 3, "arrival_s": NaN}',
        '{"prompt": "a", "max_tokens": 3, "arrival_s": "x"}',
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "workload.jsonl"
    path.write_text(f'{{"prompt": "fine", "max_tokens": 1}}\n{line}\n')

    with pytest.raises(ValueError, match=r"workload\.jsonl:2"):
        read_workload(path)


def test_an_empty_file_is_no_workload(tmp_path: Path) -> None:
    path = tmp_path / "workload.jsonl"
    path.write_text("\n")

    with pytest.raises(ValueError, match="no requests"):
        read_workload(path)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "workload.jsonl"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ValueError, match=r"workload\.jsonl: no text in UTF-8"):
        read_workload(path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate": float("nan")}, "rate must be a number"),
        ({"rate": float("inf")}, "rate must be a number"),
        ({"rate": 1e-320}, "rate must be a number"),
        ({"rate": 0}, "rate must be a number"),
        ({"rate": 1.0, "burstiness": float("nan")}, "burstiness must be a number"),
        ({"rate": 1.0, "burstiness": 0}, "burstiness must be a number"),
        ({"shared_prefix": -1}, "shared_prefix must be a whole number"),
        ({"vocabulary": MIN_RANDOM_ID}, "vocabulary"),
        ({"num_requests": 0}, "at least one request"),
    ],
)
def test_a_load_that_cannot_be_is_refused(fields: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(SPEC, **fields)


@pytest.mark.parametrize("rate", [MIN_RATE, MAX_RATE])
@pytest.mark.parametrize("burstiness", [MIN_BURSTINESS, MAX_BURSTINESS])
def test_the_most_unusual_arrivals_still_survive_their_file(
    tmp_path: Path, rate: float, burstiness: float
) -> None:
    path = tmp_path / "workload.jsonl"
    requests = make_workload(replace(SPEC, rate=rate, burstiness=burstiness))

    write_workload(path, requests)

    assert len(read_workload(path)) == len(requests)
