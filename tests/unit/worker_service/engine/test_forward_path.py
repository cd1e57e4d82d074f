"""Which way a model computes, and that a way which computes something else is left."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model_dir

from shared.errors import ModelUnusable
from worker_service.engine import forward_path
from worker_service.engine.engine import EngineConfig
from worker_service.engine.forward_path import ModelSource, load_step_model
from worker_service.engine.kernels.kernels import Kernels
from worker_service.engine.model import Output, PagedModel, StepModel
from worker_service.engine.slim.compiled_forward import CompiledSlimModel
from worker_service.engine.slim.torch_forward import TorchSlimModel

has_kernels = pytest.mark.skipif(Kernels.load() is None, reason="no C compiler")


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def load(models_dir: Path, family: str = "llama", dtype: str = "float32", **how: Any) -> StepModel:
    source = ModelSource(
        model_dir=tiny_model_dir(models_dir, family), dtype=dtype, device="cpu", **how
    )
    return load_step_model(source)[1]


@has_kernels
def test_compiled_kernels_are_taken_where_they_can_be(models_dir: Path) -> None:
    assert type(load(models_dir)) is CompiledSlimModel
    assert type(load(models_dir, forward="slim")) is CompiledSlimModel


def test_other_number_formats_stay_with_torch(models_dir: Path) -> None:
    assert type(load(models_dir, dtype="bfloat16")) is TorchSlimModel


def test_without_a_compiler_torch_serves(models_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernels, "load", lambda: None)

    assert type(load(models_dir)) is TorchSlimModel


def test_kernels_and_the_slim_forward_can_be_switched_off(models_dir: Path) -> None:
    assert type(load(models_dir, kernels=False)) is TorchSlimModel
    assert type(load(models_dir, forward="transformers")) is PagedModel


def test_other_models_go_through_transformers_and_the_log_says_why(
    models_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=forward_path.__name__):
        assert type(load(models_dir, "gpt2")) is PagedModel

    assert [r.getMessage() for r in caplog.records if r.name == forward_path.__name__] == [
        "forward: transformers, reference attention "
        "(gpt2 is not one of llama, mistral, qwen2, qwen3)"
    ]


def test_a_forced_slim_forward_that_cannot_be_is_said_in_one_line(models_dir: Path) -> None:
    with pytest.raises(ModelUnusable, match="gpt2 is not one of"):
        load(models_dir, "gpt2", forward="slim")


@has_kernels
def test_a_way_that_computes_something_else_is_left_for_the_next(
    models_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _break(monkeypatch, CompiledSlimModel)

    with caplog.at_level(logging.WARNING, logger=forward_path.__name__):
        assert type(load(models_dir)) is TorchSlimModel

    (message,) = caplog.messages
    assert "'slim, compiled kernels' differ" in message


def test_transformers_is_the_last_resort_unless_slim_was_asked_for(
    models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _break(monkeypatch, CompiledSlimModel)
    _break(monkeypatch, TorchSlimModel)

    assert type(load(models_dir)) is PagedModel
    with pytest.raises(ModelUnusable, match="something else"):
        load(models_dir, forward="slim")


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="auto, slim, transformers"):
        EngineConfig(model_dir=Path(), forward="fast")


def _break(monkeypatch: pytest.MonkeyPatch, way: type[Any]) -> None:
    right = way.forward

    def wrong(self: Any, *args: Any) -> Output:
        output: Output = right(self, *args)
        return Output(logits_RV=output.logits_RV.roll(1, -1), is_finite_T=output.is_finite_T)

    monkeypatch.setattr(way, "forward", wrong)
