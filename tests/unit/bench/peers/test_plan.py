"""What is measured, in which order, and how fast requests arrive."""

from dataclasses import dataclass
from typing import Any

import pytest

from bench.peers.plan import arrival_rate, measurements
from bench.peers.rows import Key, Row
from bench.peers.workloads import BY_NAME


@dataclass(frozen=True)
class FakeSystem:
    name: str
    is_quarter: bool = False
    default_step_tokens: int = 512
    swept_step_tokens: tuple[int, ...] = (64, 256)


def plan(systems: list[FakeSystem], workloads: list[str], repeat: int = 1, **options: Any) -> Any:
    found = measurements(
        systems,  # type: ignore[arg-type]
        [BY_NAME[name] for name in workloads],
        repeat,
        chosen=options.get("chosen", {}),
        swept=options.get("swept", ()),
    )
    return [(m.repeat, m.workload.name, m.system.name, m.step_tokens) for m in found]


def make_capacity(system: str, requests_per_s: float, **figures: Any) -> Row:
    figures = {"requests_per_s": requests_per_s, **figures}
    return Row(key=Key("64", system, 512, 0), cpu="", figures=figures)


def by_key(*rows: Row) -> dict[Key, Row]:
    return {row.key: row for row in rows}


def test_systems_take_turns_within_a_workload_and_the_first_one_rotates() -> None:
    order = plan([FakeSystem("ours"), FakeSystem("llama")], ["one", "32"], repeat=2)

    assert [(repeat, workload, system) for repeat, workload, system, _ in order] == [
        (0, "one", "ours"),
        (0, "one", "llama"),
        (0, "32", "ours"),
        (0, "32", "llama"),
        (1, "one", "llama"),
        (1, "one", "ours"),
        (1, "32", "llama"),
        (1, "32", "ours"),
    ]


def test_step_tokens_are_swept_for_the_long_prompt_and_where_asked() -> None:
    assert [step for *_, step in plan([FakeSystem("ours")], ["long"])] == [64, 256]
    assert [step for *_, step in plan([FakeSystem("ours")], ["32"])] == [512]
    assert [step for *_, step in plan([FakeSystem("ours")], ["32"], swept=["32"])] == [64, 256]


def test_chosen_step_tokens_replace_the_default() -> None:
    assert plan([FakeSystem("ours")], ["one"], chosen={"ours": 128}) == [(0, "one", "ours", 128)]


def test_a_quarter_runs_once_at_the_end_and_never_with_arrivals_or_the_long_prompt() -> None:
    systems = [FakeSystem("tf-static", is_quarter=True), FakeSystem("ours")]

    order = plan(systems, ["one", "poisson", "long"], repeat=2)

    assert [entry for entry in order if entry[2] == "tf-static"] == [(0, "one", "tf-static", 512)]
    assert order[-1][2] == "tf-static"


def test_arrivals_come_at_a_share_of_the_best_peers_capacity() -> None:
    rows = by_key(
        make_capacity("ours", 9.0),
        make_capacity("tf-static", 8.0, is_quarter=True),
        make_capacity("llama", 1.0),
        make_capacity("vllm", 2.0),
    )

    assert arrival_rate(rows) == pytest.approx(1.4)


def test_the_rate_of_earlier_arrivals_is_kept() -> None:
    earlier = Row(key=Key("poisson", "ours", 512, 0), cpu="", figures={"rate": 0.5})

    assert arrival_rate(by_key(make_capacity("llama", 1.0), earlier)) == 0.5


def test_without_a_peers_capacity_there_is_no_rate() -> None:
    assert arrival_rate(by_key(make_capacity("ours", 1.0))) is None
