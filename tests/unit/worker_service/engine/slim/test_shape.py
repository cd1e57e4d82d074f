"""Which models are Llama-shaped: a doubt is a no, and the reason is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, WINDOW, tiny_model_dir

from worker_service.engine.model_folder import LoadedModel, load_model
from worker_service.engine.slim.shape import NotSlim, SlimShape, slim_shape

SLIM_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
LAYER_TYPES = ["sliding_attention", "full_attention"]


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def load(models_dir: Path, family: str, **changes: Any) -> LoadedModel:
    return load_model(tiny_model_dir(models_dir, family, **changes), "float32", "cpu")


def rope(rope_type: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": 10_000.0, **parameters}}


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_the_numbers_are_the_models(models_dir: Path) -> None:
    shape = slim_shape(load(models_dir, "qwen3"))

    assert shape == SlimShape(
        num_heads=4,
        num_kv_heads=2,
        head_width=16,
        num_embeddings=211,
        vocabulary=211,
        norm_epsilon=1e-6,
        windows=(None, None),
    )


@pytest.mark.parametrize(
    ("family", "changes", "windows"),
    [
        ("llama", {}, (None, None)),
        ("llama", {"tie_word_embeddings": True}, (None, None)),
        ("llama", {"num_key_value_heads": 4}, (None, None)),
        ("llama", rope("linear", factor=2.0), (None, None)),
        ("llama", rope("llama3", **LLAMA3), (None, None)),
        ("llama", {"sliding_window": WINDOW}, (None, None)),  # transformers' Llama ignores it
        ("mistral", {}, (WINDOW, WINDOW)),
        ("mistral", {"sliding_window": None}, (None, None)),
        ("qwen2", {}, (None, None)),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": LAYER_TYPES},
            (WINDOW, None),
        ),
    ],
)
def test_members_of_the_family_are_slim(
    models_dir: Path, family: str, changes: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    shape = slim_shape(load(models_dir, family, **changes))

    assert isinstance(shape, SlimShape)
    assert shape.windows == windows


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        *((family, {}, "is not one of") for family in FAMILIES if family not in SLIM_FAMILIES),
        ("llama", {"attention_bias": True}, "attention_bias"),
        ("llama", {"mlp_bias": True}, "mlp_bias"),
        ("qwen3", {"attention_bias": True}, "attention_bias"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act is gelu"),
        ("llama", rope("yarn", factor=2.0), "rope type yarn"),
        ("llama", rope("dynamic", factor=2.0), "rope type dynamic"),
        ("llama", rope("default", partial_rotary_factor=0.5), "partial_rotary_factor"),
    ],
)
def test_whatever_is_unusual_goes_through_transformers(
    models_dir: Path, family: str, changes: dict[str, Any], reason: str
) -> None:
    shape = slim_shape(load(models_dir, family, **changes))

    assert isinstance(shape, NotSlim)
    assert reason in shape.reason


@pytest.mark.parametrize(
    "setting",
    [
        {"layer_types": ["linear_attention", "full_attention"]},
        {"layer_types": LAYER_TYPES, "sliding_window": None},
        {"layer_types": LAYER_TYPES[:1]},
        {"final_logit_softcapping": 30.0},
        {"num_experts": 8},
        {"quantization_config": {"bits": 4}},
        {"rope_parameters": None},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_it_does_not_know_are_no(models_dir: Path, setting: dict[str, Any]) -> None:
    loaded = load(models_dir, "qwen2")

    for name, value in setting.items():
        setattr(loaded.config, name, value)

    assert isinstance(slim_shape(loaded), NotSlim)


def test_a_weight_more_than_expected_is_no(models_dir: Path) -> None:
    loaded = load(models_dir, "llama")

    loaded.network.model.layers[1].mlp.extra = torch.nn.Linear(2, 2)

    shape = slim_shape(loaded)
    assert isinstance(shape, NotSlim)
    assert "mlp.extra" in shape.reason


def test_only_the_cpu_takes_it(models_dir: Path) -> None:
    loaded = replace(load(models_dir, "llama"), device="cuda")

    assert slim_shape(loaded) == NotSlim("device cuda, torch.float32")
