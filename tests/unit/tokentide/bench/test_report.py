"""The arithmetic from observations to figures."""

import json

import pytest

from shared.pb import operations_pb2 as pb
from tokentide.bench.load import Observation
from tokentide.bench.operations_watch import Steps, Totals
from tokentide.bench.report import Measured, chunk_gaps, figures, token_gaps


def make_observation(request_id: str = "a", due_s: float = 10.0, **fields: object) -> Observation:
    values: dict[str, object] = {"arrivals": [(11.0, 1), (11.5, 1)], "ended_s": 11.5, **fields}
    return Observation(request_id=request_id, due_s=due_s, **values)  # type: ignore[arg-type]


def make_measured(*observations: Observation, **fields: object) -> Measured:
    values: dict[str, object] = {
        "started_s": 10.0,
        "totals": Totals(num_prompt_tokens=30, num_cached_tokens=10, num_recomputed_tokens=4),
        "steps": Steps(),
        "blocks_per_worker": 50.0,
        **fields,
    }
    return Measured(observations=observations, **values)  # type: ignore[arg-type]


def test_tokens_of_one_chunk_share_the_time_since_the_chunk_before() -> None:
    arrivals = [(1.0, 2), (1.3, 3), (1.5, 1)]

    assert token_gaps(arrivals) == pytest.approx([0.1, 0.1, 0.1, 0.2])
    assert chunk_gaps(arrivals) == pytest.approx([0.3, 0.2])


def test_one_chunk_alone_has_no_gap() -> None:
    assert token_gaps([(1.0, 5)]) == []
    assert token_gaps([]) == []


def test_generated_prompt_and_recomputed_tokens_stand_apart() -> None:
    observation = make_observation(arrivals=[(11.0, 1), (12.0, 5)], ended_s=12.0)

    throughput = figures(make_measured(observation))["throughput"]

    assert throughput["generated_tokens_per_s"] == pytest.approx(3.0)
    assert throughput["prompt_tokens_per_s"] == pytest.approx(15.0)
    assert throughput["recomputed_tokens_per_s"] == pytest.approx(2.0)
    assert throughput["requests_per_s"] == pytest.approx(0.5)


def test_latencies_count_from_when_a_request_was_due() -> None:
    latency = figures(make_measured(make_observation(due_s=10.25)))["latency_s"]

    assert latency["ttft"]["p50"] == pytest.approx(0.75)
    assert latency["end_to_end"]["p50"] == pytest.approx(1.25)
    assert latency["itl"]["p50"] == pytest.approx(0.5)


def test_the_queue_time_ends_where_the_first_step_began() -> None:
    steps = Steps()
    record = pb.StepRecord()
    record.scheduled.add(request_id="a", admitted=True)
    record.timings.total_ns = 300_000_000
    later = pb.StepRecord()
    later.scheduled.add(request_id="a", admitted=True)  # after a preemption

    steps.add(record, received_s=11.0)
    steps.add(later, received_s=20.0)

    latency = figures(make_measured(make_observation(), steps=steps))["latency_s"]
    assert latency["queue_time"]["p50"] == pytest.approx(0.7)


def test_failed_requests_are_counted_by_status_and_have_no_latency() -> None:
    failed = make_observation("b", status="RESOURCE_EXHAUSTED", arrivals=[])

    result = figures(make_measured(make_observation(), failed))

    assert result["statuses"] == {"OK": 1, "RESOURCE_EXHAUSTED": 1}
    assert result["latency_s"]["end_to_end"]["count"] == 1


def test_what_came_before_the_cut_is_left_out() -> None:
    early = make_observation("early", due_s=9.0, arrivals=[(9.5, 1), (10.5, 1)], ended_s=10.5)

    result = figures(make_measured(early, make_observation()))

    assert (result["num_requests"], result["num_cut_requests"]) == (1, 1)
    assert result["throughput"]["num_generated_tokens"] == 3


def test_the_service_is_weighted_by_step_time() -> None:
    totals = Totals(
        num_steps=2,
        busy_ns=8_000_000,
        bubble_ns=2_000_000,
        plan_ns=3_000_000,
        commit_ns=5_000_000,
        num_commits=5,
        batch_size_ns=24_000_000.0,
        held_blocks_ns=200_000_000.0,
        num_prompt_tokens=30,
        num_cached_tokens=10,
    )

    service = figures(make_measured(make_observation(), totals=totals))["service"]

    assert service["batch_size"] == pytest.approx(3.0)
    assert service["kv_cache_use"] == pytest.approx(0.5)
    assert service["bubble_share"] == pytest.approx(0.2)
    assert service["plan_ms_per_step"] == pytest.approx(1.5)
    assert service["commit_ms_per_commit"] == pytest.approx(1.0)
    assert service["prefix_cache_hit_share"] == pytest.approx(0.25)


def test_without_operators_port_the_service_is_unknown_rather_than_zero() -> None:
    result = figures(make_measured(make_observation(), totals=None))

    assert result["service"] is None
    assert result["throughput"]["prompt_tokens_per_s"] is None
    json.dumps(result, allow_nan=False)


def test_figures_are_json_without_nan_even_if_nothing_came() -> None:
    nothing = make_observation(arrivals=[], status="UNAVAILABLE")

    text = json.dumps(figures(make_measured(nothing, totals=Totals())), allow_nan=False)

    assert "UNAVAILABLE" in text
