"""The size of a model, read from files that hold no weights."""

import json
import struct
from pathlib import Path

from tokentide.bench.model_architecture import architecture_of

CONFIG = {
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
}
SHAPES = {"model.embed_tokens.weight": [100, 8], "model.layers.0.mlp.weight": [8, 30]}


def make_folder(folder: Path, shapes: dict[str, list[int]]) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors = {name: {"shape": shape, "dtype": "F32"} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {}, **tensors}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def test_a_tied_embedding_is_the_head(tmp_path: Path) -> None:
    architecture = architecture_of(make_folder(tmp_path, SHAPES), "bfloat16")

    assert architecture is not None
    assert architecture.num_body_parameters == 240
    assert architecture.num_head_parameters == 800
    assert architecture.num_other_parameters == 0
    assert architecture.kv_bytes_per_token == 2 * 3 * 2 * 2 * 2


def test_a_head_of_its_own_leaves_the_embedding_unread(tmp_path: Path) -> None:
    shapes = {**SHAPES, "lm_head.weight": [100, 8], "model.embed_positions.weight": [5, 8]}

    architecture = architecture_of(make_folder(tmp_path, shapes), "float32")

    assert architecture is not None
    assert architecture.num_body_parameters == 240
    assert architecture.num_head_parameters == 800
    assert architecture.num_other_parameters == 840


def test_a_folder_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert architecture_of(tmp_path, "float32") is None
