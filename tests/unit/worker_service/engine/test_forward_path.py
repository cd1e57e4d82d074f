"""Which way a model computes, and that a way which computes something else is left."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model_dir

from shared.errors import ModelUnusable
from worker_service.engine import forward_path
from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig
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


@has_kernels
@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_weights_in_fewer_bits_are_taken_and_said(
    models_dir: Path, weights: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=forward_path.__name__):
        model = load(models_dir, weights=weights)

    assert model.path == f"slim, compiled kernels, {weights} weights"
    said = caplog.messages[0]
    assert f"weights as {weights} move logits by" in said


@has_kernels
def test_rounded_weights_are_another_model_to_the_pool(models_dir: Path) -> None:
    model_dir = tiny_model_dir(models_dir, "llama")
    fingerprints = {
        Engine.load(EngineConfig(model_dir=model_dir, num_blocks=8, weights=kind)).facts.fingerprint
        for kind in ("dtype", "bfloat16", "int8")
    }
    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    "how", [{"kernels": False}, {"forward": "transformers"}, {"dtype": "bfloat16"}]
)
def test_weights_in_fewer_bits_need_the_compiled_forward(
    models_dir: Path, how: dict[str, Any]
) -> None:
    with pytest.raises(ModelUnusable, match="--weights int8 needs the compiled forward"):
        load(models_dir, weights="int8", **how)


def test_weights_in_fewer_bits_of_a_model_of_another_shape(models_dir: Path) -> None:
    with pytest.raises(ModelUnusable, match="compiled forward: gpt2 is not one of"):
        load(models_dir, "gpt2", weights="bfloat16")


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="auto, slim, transformers"):
        EngineConfig(model_dir=Path(), forward="fast")
    with pytest.raises(ValueError, match="dtype, bfloat16, int8"):
        EngineConfig(model_dir=Path(), weights="int4")


def _break(monkeypatch: pytest.MonkeyPatch, way: type[Any]) -> None:
    right = way.forward

    def wrong(self: Any, *args: Any) -> Output:
        output: Output = right(self, *args)
        return Output(logits_RV=output.logits_RV.roll(1, -1), is_finite_T=output.is_finite_T)

    monkeypatch.setattr(way, "forward", wrong)
