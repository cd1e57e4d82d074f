"""The slim forward in torch's operators computes what transformers does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from slim_steps import MEMBERS, expected_logits, run_steps
from tiny_models import tiny_model_dir

from worker_service.engine.model_folder import DTYPES, load_model
from worker_service.engine.slim.shape import SlimShape, slim_shape
from worker_service.engine.slim.torch_forward import TorchSlimModel

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.3, "float16": 0.05}  # of the logits' spread


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize(("family", "changes"), MEMBERS)
def test_logits_are_those_of_transformers(
    models_dir: Path, family: str, changes: dict[str, Any]
) -> None:
    assert error(models_dir, family, changes, "float32") < TOLERANCE["float32"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_number_formats_are_as_close_as_they_can_be(models_dir: Path, dtype: str) -> None:
    assert error(models_dir, "qwen3", {}, dtype) < TOLERANCE[dtype]


def error(models_dir: Path, family: str, changes: dict[str, Any], dtype: str) -> float:
    """Largest difference over all sequences, in standard deviations of the logits."""
    loaded = load_model(tiny_model_dir(models_dir, family, **changes), dtype, "cpu")
    expected = torch.stack(expected_logits(loaded))
    shape = slim_shape(loaded)
    assert isinstance(shape, SlimShape)
    model = TorchSlimModel(shape, loaded.network)
    assert not list(loaded.network.parameters()), "weights are kept twice"

    found = run_steps(model, DTYPES[dtype], lambda output: _is_all_finite(output.is_finite_T))

    return float((torch.stack(found) - expected).abs().max() / expected.std())


def _is_all_finite(is_finite_T: torch.Tensor) -> None:
    assert is_finite_T.dtype == torch.bool
    assert is_finite_T.all()
