"""The simulated engine: exact accounts, outputs that depend on nothing but the request."""

import random
import subprocess
import sys

import pytest
from simulated_engines import STOP_ID, make_admission, make_engine

from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    FinishReason,
    RefusalReason,
    Release,
    ReleaseReason,
    SamplingParams,
    StopRules,
)
from worker_service.simulated.engine import SimulatedEngine


class Steps:
    """Plans one after the other."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.step_id = 0

    def run(self, *chunks: Chunk, admissions=(), releases=()):
        self.step_id += 1
        plan = BatchPlan(
            epoch=1,
            step_id=self.step_id,
            releases=tuple(releases),
            admissions=tuple(admissions),
            chunks=chunks,
        )
        result = self.engine.execute(plan)
        self.engine.check_invariants()
        return result


def outputs_of(engine: SimulatedEngine, admission: Admission, chunk_size: int) -> list[int]:
    steps, ids, admissions = Steps(engine), [], (admission,)
    while True:
        (row,) = steps.run(Chunk(admission.handle, chunk_size), admissions=admissions).rows
        ids += row.sampled_ids
        admissions = ()
        if row.finish is not None:
            return ids


def test_a_step_takes_what_the_cost_model_says_of_its_shape():
    engine = make_engine(per_token_ns=10, per_sample_ns=3)

    result = Steps(engine).run(Chunk(1, 30), admissions=[make_admission()])
    last = Steps(engine).run(Chunk(1, 30))

    assert result.timings.total_ns == 1000 + 30 * 10
    assert last.timings.total_ns == 1000 + 10 * 10 + 3
    assert [row.num_computed_tokens for row in (*result.rows, *last.rows)] == [30, 10]


@pytest.mark.parametrize("chunk_size", [1, 7, 16, 64])
def test_an_output_does_not_depend_on_how_the_prompt_was_cut(chunk_size):
    whole = outputs_of(make_engine(), make_admission(), 1000)

    assert outputs_of(make_engine(), make_admission(), chunk_size) == whole
    assert len(whole) == 20
    assert STOP_ID not in whole


def test_an_output_goes_on_where_it_was_after_a_preemption():
    whole = outputs_of(make_engine(), make_admission(), 64)
    engine = make_engine()
    prompt = make_admission().token_ids
    again = Admission(
        request_id="r1",
        assignment=Assignment(2, 1),
        handle=2,
        token_ids=prompt + tuple(whole[:9]),
        num_prompt_tokens=len(prompt),
        sampling=SamplingParams(seed=5),
        stop=StopRules(max_tokens=20, stop_token_ids=(STOP_ID,)),
    )

    assert outputs_of(engine, again, 64) == whole[9:]


def test_a_drawn_length_ends_with_the_stop_token():
    ids = outputs_of(make_engine(lengths="fixed:6"), make_admission(), 64)

    assert len(ids) == 6
    assert ids[-1] == STOP_ID


def test_no_stop_token_before_min_tokens_nor_where_none_is_wanted():
    engine = make_engine(lengths="fixed:6")

    assert len(outputs_of(engine, make_admission(1, min_tokens=10), 64)) == 11
    assert len(outputs_of(engine, make_admission(2, stop_token_ids=()), 64)) == 20


def test_requests_with_one_seed_have_lengths_of_their_own():
    engine = make_engine(lengths="uniform:1-500", num_blocks=640)
    admissions = [
        make_admission(handle, prompt=(20 + handle,) * 10, max_tokens=1000)
        for handle in range(1, 9)
    ]

    lengths = {len(outputs_of(engine, admission, 64)) for admission in admissions}

    assert len(lengths) > 4


def test_equal_beginnings_are_computed_once():
    steps = Steps(make_engine())
    steps.run(Chunk(1, 64), admissions=[make_admission(1)])
    steps.run(releases=[Release(handle=1, reason=ReleaseReason.FINISHED)])

    result = steps.run(Chunk(2, 64), admissions=[make_admission(2)])

    assert result.rows[0].num_cached_tokens == 32
    assert result.rows[0].num_computed_tokens == 8


def test_what_does_not_fit_is_refused_and_the_rest_runs():
    steps = Steps(make_engine(num_blocks=5))

    result = steps.run(
        Chunk(1, 64),
        Chunk(2, 64),
        Chunk(9, 1),
        admissions=[make_admission(1), make_admission(2, prompt=(30,) * 40)],
    )

    assert [row.handle for row in result.rows] == [1]
    assert {r.handle: r.reason for r in result.refusals} == {
        2: RefusalReason.NO_FREE_BLOCK,
        9: RefusalReason.UNKNOWN_HANDLE,
    }
    assert result.blocks.held == 3


def test_accounts_hold_over_random_plans():
    rng = random.Random(3)
    steps, handle = Steps(make_engine(num_blocks=40, lengths="uniform:1-30")), 0
    live: set[int] = set()
    for _ in range(300):
        admissions = []
        if rng.random() < 0.3:
            handle += 1
            prompt = tuple(rng.randrange(10, 14) for _ in range(rng.randrange(1, 60)))
            admissions.append(make_admission(handle, prompt, max_tokens=40, seed=handle))
        gone = [h for h in live if rng.random() < 0.03]
        releases = [Release(handle=h, reason=ReleaseReason.PREEMPTED) for h in gone]
        live = live - set(gone) | {a.handle for a in admissions}
        chunks = [Chunk(h, rng.choice((1, 8, 64))) for h in sorted(live)]

        result = steps.run(*chunks, admissions=admissions, releases=releases)

        live -= {row.handle for row in result.rows if row.finish is FinishReason.LENGTH}
        counts = result.blocks
        assert counts.free + counts.cached + counts.held == counts.total


@pytest.mark.slow
def test_a_simulated_worker_never_imports_torch():
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None;"
        "import worker_service.simulated.start, worker_service.simulated.compute"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
