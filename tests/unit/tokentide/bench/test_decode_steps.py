"""Which steps count as pure decode steps of a batch size."""

from shared.cost_model import CostModel
from shared.types import BlockCounts, StepTimings
from tokentide.bench.decode_steps import PredictedSteps, decode_spans, settled_ms
from tokentide.bench.operations_watch import StepSpan
from tokentide.commands.readings import Scheduled, Step


def make_span(*kinds: str, total_ms: float = 5.0) -> StepSpan:
    """`d` for a decode, `p` for a chunk of a prompt."""
    scheduled = tuple(
        Scheduled(f"r{number}", 1 if kind == "d" else 8, kind == "d")
        for number, kind in enumerate(kinds)
    )
    step = Step(
        worker="w",
        step_id=1,
        scheduled=scheduled,
        blocks=BlockCounts(total=1, free=1, held=0, cached=0),
        num_waiting=0,
        num_running=len(kinds),
        timings=StepTimings(total_ns=int(total_ms * 1e6)),
    )
    return StepSpan(began_s=0.0, ended_s=total_ms / 1e3, step=step)


def test_only_steps_with_exactly_so_many_decodes_and_nothing_else_count() -> None:
    spans = [make_span("d"), make_span("d", "d"), make_span("d", "p"), make_span("d", "d", "d")]

    assert decode_spans(spans, 2) == [spans[1]]


def test_the_first_steps_of_a_batch_size_are_left_out() -> None:
    assert settled_ms([make_span("d", total_ms=ms) for ms in (9, 8, 5, 6)]) == (5.0, 6.0)
    assert settled_ms([make_span("d")]) == ()


async def test_a_predicted_step_costs_what_the_model_says() -> None:
    costs = CostModel(base_ns=1e6, per_sequence_ns=1e5, per_context_ns=100.0)

    steps = await PredictedSteps("m", costs).measure(batch_size=4, context=500, num_steps=3)

    assert steps.steps_ms == (1.6, 1.6, 1.6)
