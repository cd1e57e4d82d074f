"""Whole steps on a tiny model: rows, refusals, finishes, failures."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import VOCABULARY, tiny_model, tiny_model_dir

from shared.errors import ModelUnusable
from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    FinishReason,
    Refusal,
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


class Driver:
    """Numbers the steps, and checks the invariants after each."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._step_id = 0

    def step(self, *parts: Admission | Chunk | Release) -> StepResult:
        self._step_id += 1
        result = self.engine.execute(
            BatchPlan(
                epoch=3,
                step_id=self._step_id,
                releases=tuple(part for part in parts if isinstance(part, Release)),
                admissions=tuple(part for part in parts if isinstance(part, Admission)),
                chunks=tuple(part for part in parts if isinstance(part, Chunk)),
            )
        )
        self.engine.check_invariants()
        assert (result.epoch, result.step_id) == (3, self._step_id)
        blocks = result.blocks
        assert blocks.free + blocks.cached + blocks.held == blocks.total
        return result

    def outputs(self, admission: Admission, chunk_size: int = 100) -> list[int]:
        """All tokens of this one, alone; then it is released."""
        result = self.step(admission, Chunk(admission.handle, chunk_size))
        sampled = [*result.rows[0].sampled_ids]
        while not (result.rows and result.rows[0].finish):
            assert not result.refusals
            result = self.step(Chunk(admission.handle, chunk_size))
            sampled += result.rows[0].sampled_ids
        self.step(release(admission.handle))
        return sampled


def release(handle: int) -> Release:
    return Release(handle=handle, reason=ReleaseReason.FINISHED)


def admit(handle: int = 1, num_tokens: int = 10, **fields: Any) -> Admission:
    defaults: dict[str, Any] = {
        "token_ids": tuple((7 * place + handle) % 190 + 3 for place in range(num_tokens)),
        "num_prompt_tokens": num_tokens,
        "sampling": SamplingParams(temperature=0.0),
        "stop": StopRules(max_tokens=6),
    }
    return Admission(
        request_id=f"r{handle}",
        assignment=Assignment(handle, 9),
        handle=handle,
        **{**defaults, **fields},
    )


def reasons(refusals: tuple[Refusal, ...]) -> list[tuple[int, RefusalReason]]:
    return [(refusal.handle, refusal.reason) for refusal in refusals]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("models"), "llama")


@pytest.fixture
def make_driver(model_dir: Path) -> Callable[..., Driver]:
    def make(**config: Any) -> Driver:
        defaults: dict[str, Any] = {"block_size": 4, "num_blocks": 40, "num_threads": 1}
        return Driver(Engine.load(EngineConfig(model_dir=model_dir, **{**defaults, **config})))

    return make


@pytest.fixture
def driver(make_driver: Callable[..., Driver]) -> Driver:
    return make_driver()


def test_a_chunk_is_clamped_to_what_is_pending_and_the_last_one_samples(driver: Driver) -> None:
    first = driver.step(admit(1, num_tokens=10), Chunk(1, 6))
    second = driver.step(Chunk(1, 6))
    third = driver.step(Chunk(1, 6))

    (row,) = first.rows
    assert (row.num_computed_tokens, row.sampled_ids) == (6, ())
    (row,) = second.rows
    assert (row.num_computed_tokens, len(row.sampled_ids), row.first_index) == (4, 1, 0)
    (row,) = third.rows
    assert (row.num_computed_tokens, len(row.sampled_ids), row.first_index) == (1, 1, 1)
    assert min(third.timings.prepare_ns, third.timings.forward_ns, third.timings.sample_ns) > 0
    assert third.memory.process_bytes > 0


def test_max_tokens_finish_a_sequence_which_stays_until_it_is_released(driver: Driver) -> None:
    driver.step(admit(1, stop=StopRules(max_tokens=1)))
    result = driver.step(Chunk(1, 10))
    assert result.rows[0].finish is FinishReason.LENGTH

    after = driver.step(Chunk(1, 10))

    assert after.rows == after.refusals == ()
    (resident,) = driver.engine.resident()
    assert resident.output_ids == result.rows[0].sampled_ids
    assert resident.finish is FinishReason.LENGTH
    assert resident.num_computed_tokens == 10
    driver.step(release(1), release(1))
    assert driver.engine.resident() == ()
    assert driver.engine.blocks().held == 0


def test_a_stop_token_ends_a_sequence_but_is_not_sampled_before_min_tokens(driver: Driver) -> None:
    free_run = driver.outputs(admit(1))
    stop_id = free_run[1]
    ends = driver.outputs(
        admit(2, stop=StopRules(max_tokens=6, stop_token_ids=(stop_id,)), **same())
    )
    held = driver.outputs(
        admit(3, stop=StopRules(max_tokens=6, min_tokens=4, stop_token_ids=(stop_id,)), **same())
    )

    assert ends == free_run[:2]
    assert stop_id not in held[:4]
    assert held[0] == free_run[0]


def same() -> dict[str, Any]:
    """The prompt of handle 1."""
    return {"token_ids": admit(1).token_ids}


def test_a_prefix_hit_is_reported_once_and_changes_nothing(driver: Driver) -> None:
    expected = driver.outputs(admit(1))

    first = driver.step(admit(2, **same()), Chunk(2, 1))
    second = driver.step(Chunk(2, 99))

    assert first.rows[0].num_cached_tokens == 8
    assert second.rows[0].num_cached_tokens == 0
    driver.step(release(2))
    assert driver.outputs(admit(3, **same())) == expected


def test_another_salt_finds_nothing(driver: Driver) -> None:
    driver.outputs(admit(1))

    result = driver.step(admit(2, cache_salt=b"other", **same()), Chunk(2, 99))

    assert result.rows[0].num_cached_tokens == 0


def test_a_sequence_goes_on_from_its_log_elsewhere_with_the_same_tokens(driver: Driver) -> None:
    sampling = SamplingParams(temperature=1.0, top_p=0.95, seed=5)
    whole = driver.outputs(admit(1, sampling=sampling))

    token_ids = (*admit(1).token_ids, *whole[:3])
    rest = driver.outputs(admit(2, sampling=sampling, token_ids=token_ids), chunk_size=3)

    assert rest == whole[3:]


def test_rows_are_refused_one_by_one_and_the_others_run(driver: Driver) -> None:
    driver.step(admit(1), Chunk(1, 99))

    result = driver.step(
        admit(1),
        admit(2),
        admit(3, token_ids=(1, VOCABULARY), num_prompt_tokens=2),
        Chunk(2, 5),
        Chunk(3, 5),
        Chunk(77, 5),
        Chunk(2, 5),
    )

    assert [row.handle for row in result.rows] == [2]
    assert reasons(result.refusals) == [
        (1, RefusalReason.DUPLICATE_HANDLE),
        (3, RefusalReason.BAD_ADMISSION),
        (77, RefusalReason.UNKNOWN_HANDLE),
        (2, RefusalReason.DUPLICATE_HANDLE),
    ]


def test_growth_without_a_free_block_refuses_that_row_only(
    make_driver: Callable[..., Driver],
) -> None:
    driver = make_driver(num_blocks=5)
    driver.step(admit(1, num_tokens=8), admit(2, num_tokens=9), Chunk(1, 99), Chunk(2, 99))

    result = driver.step(Chunk(1, 1), Chunk(2, 1))

    assert [row.handle for row in result.rows] == [2]
    assert reasons(result.refusals) == [(1, RefusalReason.NO_FREE_BLOCK)]
    driver.step(release(2))
    assert [row.handle for row in driver.step(Chunk(1, 1)).rows] == [1]


def test_a_step_computes_no_more_tokens_than_its_limit(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_step_tokens=8)

    result = driver.step(admit(1), admit(2), admit(3), Chunk(1, 5), Chunk(2, 5), Chunk(3, 5))

    assert [(row.handle, row.num_computed_tokens) for row in result.rows] == [(1, 5), (2, 3)]
    assert result.refusals == ()


def test_an_empty_plan_and_a_chunk_of_nothing_are_fine(driver: Driver) -> None:
    assert driver.step().rows == ()
    assert driver.step(admit(1), Chunk(1, 0)).rows == ()


def test_forget_all_leaves_only_cached_blocks(driver: Driver) -> None:
    driver.step(admit(1), admit(2), Chunk(1, 99), Chunk(2, 4))

    driver.engine.forget_all()

    driver.engine.check_invariants()
    assert driver.engine.resident() == ()
    assert driver.engine.blocks().held == 0
    assert driver.engine.blocks().cached == 3


@pytest.fixture(scope="module")
def poisoned_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose embedding of one token is NaN."""
    folder = tmp_path_factory.mktemp("poisoned")
    model = tiny_model("llama", tie_word_embeddings=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[POISON] = float("nan")
    model.save_pretrained(folder)
    return folder


def test_a_row_that_computes_nan_fails_alone_and_leaves_no_trace(
    poisoned_dir: Path,
) -> None:
    driver = Driver(
        Engine.load(
            EngineConfig(model_dir=poisoned_dir, block_size=4, num_blocks=12, num_threads=1)
        )
    )
    expected = driver.outputs(admit(1))
    poisoned = (*admit(1).token_ids, POISON, 5, 6)

    result = driver.step(
        admit(2, **same()),
        admit(3, token_ids=poisoned, num_prompt_tokens=len(poisoned)),
        Chunk(2, 99),
        Chunk(3, 99),
    )

    assert reasons(result.refusals) == [(3, RefusalReason.FAILED)]
    assert [row.handle for row in result.rows] == [2]
    assert result.rows[0].sampled_ids == (expected[0],)
    assert [r.handle for r in driver.engine.resident()] == [2]
    driver.step(release(2))
    # every block of the pool is used again, also those that held NaN
    assert driver.outputs(admit(4, num_tokens=40))
    assert driver.outputs(admit(5, **same())) == expected


def test_nan_in_a_chunk_that_does_not_sample_is_noticed_before_others_can_share_it(
    poisoned_dir: Path,
) -> None:
    driver = Driver(
        Engine.load(
            EngineConfig(model_dir=poisoned_dir, block_size=4, num_blocks=12, num_threads=1)
        )
    )
    token_ids = (5, 6, POISON, 7, 8, 9, 10, 11, 12, 13)

    result = driver.step(admit(1, token_ids=token_ids), Chunk(1, 8))

    assert reasons(result.refusals) == [(1, RefusalReason.FAILED)]
    assert result.blocks.free == 12


def test_an_exception_fails_the_rows_of_that_step_and_the_worker_lives(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = driver.outputs(admit(1))
    driver.step(admit(2), admit(3), Chunk(2, 99))

    def explode(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
        patch.setattr(driver.engine._model, "forward", explode)
        result = driver.step(Chunk(2, 1))

    assert reasons(result.refusals) == [(2, RefusalReason.FAILED)]
    assert "out of memory" in result.refusals[0].detail
    assert [r.handle for r in driver.engine.resident()] == [3]
    assert driver.step(Chunk(3, 99)).rows[0].sampled_ids
    assert driver.outputs(admit(4, **same())) == expected


def test_two_engines_in_one_process_do_not_mix(make_driver: Callable[..., Driver]) -> None:
    one, two = make_driver(), make_driver(block_size=8)
    expected = one.outputs(admit(1))

    one.step(admit(2, **same()), Chunk(2, 99))
    assert two.outputs(admit(1)) == expected
    assert one.step(Chunk(2, 1)).rows[0].sampled_ids == (expected[1],)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_number_formats_run(make_driver: Callable[..., Driver], dtype: str) -> None:
    driver = make_driver(dtype=dtype)

    assert len(driver.outputs(admit(1))) == 6
    assert driver.engine.facts.fingerprint != make_driver().engine.facts.fingerprint


def test_facts_say_what_the_engine_is(driver: Driver, model_dir: Path) -> None:
    facts = driver.engine.facts

    assert facts.model_name == model_dir.name
    assert (facts.block_size, facts.num_blocks) == (4, 40)
    assert (facts.max_model_tokens, facts.logits_width) == (256, VOCABULARY)
    assert facts.eos_token_ids == (2,)
    assert len(bytes.fromhex(facts.fingerprint)) == 32


def test_the_cache_takes_what_it_is_given(make_driver: Callable[..., Driver]) -> None:
    # 2 layers, 2 heads of width 8, keys and values, float32
    driver = make_driver(num_blocks=0, kv_memory_bytes=10 * 4 * 2 * 2 * 8 * 2 * 4 + 7)

    assert driver.engine.facts.num_blocks == 10
    with pytest.raises(ModelUnusable, match="no block"):
        make_driver(num_blocks=0, kv_memory_bytes=100)
