"""The size of a model from its folder: config.json and the heads of its safetensors files. Loads nothing."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.profiles import Architecture

BYTES_PER_VALUE = {"float32": 4, "bfloat16": 2, "float16": 2}
EMBEDDINGS = ("embed_tokens.weight", "wte.weight")
POSITIONS = ("embed_positions.weight", "wpe.weight")
HEAD = "lm_head.weight"


def architecture_of(folder: Path, dtype: str) -> Architecture | None:
    """None where the folder does not say: another format, another family."""
    try:
        config = json.loads((folder / "config.json").read_text())
        shapes = _tensor_shapes(folder)
        return _architecture(config, shapes, BYTES_PER_VALUE[dtype])
    except (OSError, KeyError, ValueError, struct.error):
        return None


def _architecture(
    config: Mapping[str, Any], shapes: Mapping[str, list[int]], bytes_per_value: int
) -> Architecture:
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    embedding = sum(size for name, size in sizes.items() if name.endswith(EMBEDDINGS))
    positions = sum(size for name, size in sizes.items() if name.endswith(POSITIONS))
    own_head = sum(size for name, size in sizes.items() if name.endswith(HEAD))
    num_heads = int(_first(config, "num_attention_heads", "n_head"))
    width = int(_first(config, "hidden_size", "n_embd"))
    return Architecture(
        num_body_parameters=sum(sizes.values()) - embedding - positions - own_head,
        num_head_parameters=own_head or embedding,  # a tied one is its own head
        num_other_parameters=positions + (embedding if own_head else 0),
        num_layers=int(_first(config, "num_hidden_layers", "n_layer")),
        num_heads=num_heads,
        num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
        head_width=int(config.get("head_dim") or width // num_heads),
        bytes_per_value=bytes_per_value,
    )


def _first(config: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if name in config:
            return config[name]
    raise KeyError(names[0])


def _tensor_shapes(folder: Path) -> dict[str, list[int]]:
    """A safetensors file begins with the length of a JSON object that names its tensors."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        shapes |= {name: t["shape"] for name, t in header.items() if name != "__metadata__"}
    if not shapes:
        raise KeyError("no safetensors file")
    return shapes
