"""A model folder that says what its model looks like, and holds no weights."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = {
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
}
SHAPES = {"model.embed_tokens.weight": [100, 8], "model.layers.0.mlp.weight": [8, 30]}


def write_model_heads(folder: Path, shapes: Mapping[str, Sequence[int]]) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors = {name: {"shape": shape, "dtype": "F32"} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {}, **tensors}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder
