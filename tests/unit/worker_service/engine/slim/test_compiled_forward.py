"""The slim forward in compiled kernels computes what transformers does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from slim_steps import MEMBERS, expected_logits, run_steps
from tiny_models import tiny_model_dir

from worker_service.engine.kernels.kernels import Kernels
from worker_service.engine.model import Output
from worker_service.engine.model_folder import load_model
from worker_service.engine.slim.compiled_forward import CompiledSlimModel, can_compile
from worker_service.engine.slim.shape import SlimShape, slim_shape


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    loaded = Kernels.load(num_threads=2)
    if loaded is None:
        pytest.skip("no C compiler")
    return loaded


@pytest.mark.parametrize(("family", "changes"), MEMBERS)
def test_logits_are_those_of_transformers(
    models_dir: Path, kernels: Kernels, family: str, changes: dict[str, Any]
) -> None:
    loaded = load_model(tiny_model_dir(models_dir, family, **changes), "float32", "cpu")
    expected = torch.stack(expected_logits(loaded))
    shape = slim_shape(loaded)
    assert isinstance(shape, SlimShape)
    assert can_compile(shape, torch.float32)
    model = CompiledSlimModel(shape, loaded.network, kernels, loaded.max_model_tokens)
    assert not list(loaded.network.parameters()), "weights are kept twice"

    found = run_steps(model, torch.float32, _assert_all_finite)

    assert (torch.stack(found) - expected).abs().max() < 1e-4 * expected.std()


def test_another_cache_is_written_and_read_when_it_is_given(
    models_dir: Path, kernels: Kernels
) -> None:
    loaded = load_model(tiny_model_dir(models_dir, "llama"), "float32", "cpu")
    shape = slim_shape(loaded)
    assert isinstance(shape, SlimShape)
    model = CompiledSlimModel(shape, loaded.network, kernels, loaded.max_model_tokens)

    first = run_steps(model, torch.float32, _assert_all_finite)
    second = run_steps(model, torch.float32, _assert_all_finite)

    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize(
    ("head_width", "dtype", "expected"),
    [
        (64, torch.float32, True),
        (256, torch.float32, True),
        (20, torch.float32, False),
        (264, torch.float32, False),
        (64, torch.bfloat16, False),
    ],
)
def test_what_the_kernels_cannot_take_is_known_before(
    head_width: int, dtype: torch.dtype, expected: bool
) -> None:
    shape = SlimShape(
        num_heads=4,
        num_kv_heads=2,
        head_width=head_width,
        num_embeddings=9,
        vocabulary=9,
        norm_epsilon=1e-6,
        windows=(None,),
    )

    assert can_compile(shape, dtype) is expected


def _assert_all_finite(output: Output) -> None:
    assert output.is_finite_T.all()
