"""Rows that arrive together with one beginning: it is computed once."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tiny_models import tiny_model, tiny_model_dir

from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    RefusalReason,
    Release,
    ReleaseReason,
    SamplingParams,
    StepResult,
    StopRules,
)
from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig

POISON = 200  # its embedding is NaN in the poisoned model
SHARED = tuple(range(20, 36))  # four blocks of four
BLOCK_SIZE = 4


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def poisoned_dir(models_dir: Path) -> Path:
    folder = models_dir / "poisoned"
    model = tiny_model("llama", tie_word_embeddings=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[POISON] = float("nan")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(params=[{}, {"kernels": False}, {"forward": "transformers"}], ids=str)
def how(request: pytest.FixtureRequest) -> dict[str, Any]:
    """By whichever way it is computed."""
    found: dict[str, Any] = request.param
    return found


def load(model_dir: Path, **config: Any) -> Engine:
    defaults: dict[str, Any] = {"block_size": BLOCK_SIZE, "num_blocks": 64, "num_threads": 1}
    return Engine.load(EngineConfig(model_dir=model_dir, **{**defaults, **config}))


def admit(handle: int, token_ids: tuple[int, ...], **fields: Any) -> Admission:
    return Admission(
        request_id=f"r{handle}",
        assignment=Assignment(handle, 1),
        handle=handle,
        token_ids=token_ids,
        num_prompt_tokens=len(token_ids),
        sampling=SamplingParams(temperature=0.0),
        stop=StopRules(max_tokens=5),
        **fields,
    )


def step(engine: Engine, *parts: Admission | Chunk | int) -> StepResult:
    """Admissions, chunks, and handles to be released."""
    result = engine.execute(
        BatchPlan(
            epoch=1,
            step_id=1,
            releases=tuple(
                Release(handle=part, reason=ReleaseReason.FINISHED)
                for part in parts
                if isinstance(part, int)
            ),
            admissions=tuple(part for part in parts if isinstance(part, Admission)),
            chunks=tuple(part for part in parts if isinstance(part, Chunk)),
        )
    )
    engine.check_invariants()
    return result


def outputs_alone(engine: Engine, token_ids: tuple[int, ...]) -> list[int]:
    step(engine, admit(99, token_ids))
    found = [
        i for _ in range(5) for row in step(engine, Chunk(99, 99)).rows for i in row.sampled_ids
    ]
    step(engine, 99)
    return found


def computed(result: StepResult) -> list[tuple[int, int, int]]:
    return [(row.handle, row.num_cached_tokens, row.num_computed_tokens) for row in result.rows]


def test_a_beginning_that_arrives_many_times_at_once_is_computed_once(
    models_dir: Path, how: dict[str, Any]
) -> None:
    prompts = [(*SHARED, 100 + number, 110 + number, 120) for number in range(4)]
    lonely = load(tiny_model_dir(models_dir), prefix_cache=False, **how)
    expected = [outputs_alone(lonely, prompt) for prompt in prompts]
    engine = load(tiny_model_dir(models_dir), **how)

    first = step(
        engine,
        *(admit(handle, prompt) for handle, prompt in enumerate(prompts)),
        *(Chunk(handle, 99) for handle in range(4)),
    )

    assert computed(first) == [(0, 0, 19), (1, 16, 3), (2, 16, 3), (3, 16, 3)]
    assert first.blocks.held == 4 + 4 * 1
    found = [list(row.sampled_ids) for row in first.rows]
    for _ in range(4):
        for row in step(engine, *(Chunk(handle, 1) for handle in range(4))).rows:
            found[row.handle] += row.sampled_ids
    assert found == expected


def test_one_goes_on_where_the_other_ends_in_the_same_step(models_dir: Path) -> None:
    lonely = load(tiny_model_dir(models_dir), prefix_cache=False)
    expected = outputs_alone(lonely, (*SHARED, 7))[0]
    engine = load(tiny_model_dir(models_dir))

    first = step(engine, admit(1, (*SHARED, 5)), admit(2, (*SHARED, 7)), Chunk(1, 8), Chunk(2, 8))
    second = step(engine, Chunk(2, 8))

    assert computed(first) == [(1, 0, 8), (2, 8, 8)]
    assert computed(second) == [(2, 0, 1)]
    assert second.rows[0].sampled_ids == (expected,)


def test_what_was_published_between_admission_and_first_chunk_is_found(models_dir: Path) -> None:
    engine = load(tiny_model_dir(models_dir))
    step(engine, admit(1, (*SHARED, 5)), admit(2, (*SHARED, 7)), Chunk(1, 99))

    result = step(engine, Chunk(2, 99))

    assert computed(result) == [(2, 16, 1)]


def test_the_last_token_is_always_left_to_compute(models_dir: Path) -> None:
    engine = load(tiny_model_dir(models_dir))

    result = step(engine, admit(1, SHARED), admit(2, SHARED), Chunk(1, 99), Chunk(2, 99))

    assert computed(result) == [(1, 0, 16), (2, 12, 4)]
    assert result.rows[0].sampled_ids == result.rows[1].sampled_ids


@pytest.mark.parametrize("config", [{"prefix_cache": False}, {}], ids=["no cache", "other salt"])
def test_nothing_is_shared_that_may_not_be(models_dir: Path, config: dict[str, Any]) -> None:
    engine = load(tiny_model_dir(models_dir), **config)

    result = step(
        engine,
        admit(1, (*SHARED, 5)),
        admit(2, (*SHARED, 5), cache_salt=b"mine" if not config else b""),
        Chunk(1, 99),
        Chunk(2, 99),
    )

    assert computed(result) == [(1, 0, 17), (2, 0, 17)]


def test_borrowers_of_a_lender_that_computes_nan_go_on_without_it(
    poisoned_dir: Path, how: dict[str, Any]
) -> None:
    lonely = load(poisoned_dir, prefix_cache=False, **how)
    expected = [outputs_alone(lonely, (*SHARED, token)) for token in (7, 8)]
    engine = load(poisoned_dir, num_blocks=20, **how)

    first = step(
        engine,
        admit(1, (*SHARED, POISON, 5)),
        admit(2, (*SHARED, 7)),
        admit(3, (*SHARED, 8)),
        *(Chunk(handle, 99) for handle in (1, 2, 3)),
    )

    # whether their own numbers are good depends on how far the kernel looked: both ends are right
    assert [(r.handle, r.reason) for r in first.refusals] == [(1, RefusalReason.FAILED)]
    found: dict[int, list[int]] = {2: [], 3: []}
    for row in first.rows:
        found[row.handle] += row.sampled_ids
    while min(map(len, found.values())) < 5:
        result = step(engine, *(Chunk(handle, 99) for handle in (2, 3)))
        assert result.refusals == ()
        for row in result.rows:
            found[row.handle] += row.sampled_ids
    assert [found[2], found[3]] == expected
    step(engine, 2, 3)
    assert engine.blocks().held == 0


def test_nan_inside_what_was_lent_fails_one_after_the_other(
    poisoned_dir: Path, how: dict[str, Any]
) -> None:
    engine = load(poisoned_dir, num_blocks=20, **how)
    bad = (*SHARED[:5], POISON, *SHARED[6:])
    handles = (1, 2, 3)

    failed = []
    admissions = [admit(handle, (*bad, 40 + handle)) for handle in handles]
    for _ in handles:
        result = step(engine, *admissions, *(Chunk(h, 99) for h in handles if h not in failed))
        admissions = []
        assert result.rows == ()
        failed += [refusal.handle for refusal in result.refusals]

    assert failed == [1, 2, 3]
    assert engine.blocks().held == 0
    # every block of the pool is used again, also those that held NaN
    assert len(outputs_alone(engine, tuple(range(3, 73)))) == 5


def test_an_exception_leaves_no_block_behind(
    models_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load(tiny_model_dir(models_dir))
    expected = outputs_alone(engine, (*SHARED, 7))

    def explode(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch, caplog.at_level("CRITICAL"):
        patch.setattr(engine._model, "forward", explode)
        other = tuple(token + 50 for token in SHARED)
        result = step(
            engine, admit(1, (*other, 1)), admit(2, (*other, 2)), Chunk(1, 99), Chunk(2, 99)
        )

    assert len(result.refusals) == 2
    assert engine.blocks().held == 0
    assert outputs_alone(engine, (*SHARED, 7)) == expected
    assert computed(step(engine, admit(5, (*other, 1)), Chunk(5, 99))) == [(5, 0, 17)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_arrives_leaves_or_fails_the_others_get_their_tokens(
    poisoned_dir: Path, seed: int
) -> None:
    """Random arrivals with common beginnings, some poisoned, in a pool too small for all."""
    random = Random(seed)
    lonely = load(poisoned_dir, prefix_cache=False)
    engine = load(poisoned_dir, num_blocks=30)
    beginnings = [tuple(random.choices(range(3, 190), k=length)) for length in (8, 21, 40)]
    live: dict[int, tuple[int, ...]] = {}  # handle -> prompt and output
    prompts: dict[int, tuple[int, ...]] = {}
    num_finished = num_failed = num_preempted = 0

    for handle in range(1, 10_000):
        if num_finished >= 40 and not live:
            break
        arrivals = []
        for number in range(random.randrange(4) if num_finished < 40 else 0):
            tail = tuple(random.choices(range(3, 190), k=random.randrange(1, 9)))
            tail += (POISON, 5) if random.random() < 0.2 else ()
            new = handle * 10 + number
            prompts[new] = live[new] = random.choice(beginnings)[: random.randrange(4, 41)] + tail
            arrivals.append(admit(new, live[new]))
        handles = random.sample(sorted(live), len(live))
        leaving = {h for h in handles if h // 10 != handle and random.random() < 0.02}
        chunks = [Chunk(h, random.choice([1, 3, 8, 17, 64])) for h in handles if h not in leaving]
        result = step(engine, *leaving, *arrivals, *chunks)
        for gone in leaving:
            del live[gone]
        for row in result.rows:
            live[row.handle] += row.sampled_ids
            if row.finish:
                prompt, output = prompts[row.handle], live[row.handle][len(prompts[row.handle]) :]
                assert list(output) == outputs_alone(lonely, prompt)
                step(engine, row.handle)
                del live[row.handle]
                num_finished += 1
        for refusal in result.refusals:
            if refusal.handle not in live:
                continue
            if refusal.reason is RefusalReason.FAILED:
                assert POISON in live[refusal.handle]  # given, or sampled
                num_failed += 1
            else:
                num_preempted += 1
            step(engine, refusal.handle)
            del live[refusal.handle]

    step(engine, *live)
    assert engine.blocks().held == 0
    assert min(num_finished, num_failed, num_preempted) > 0
