"""Read a Hugging Face folder: the network, what it is, and its fingerprint.

Local files only, weights from safetensors only, no code from the folder is ever run. Knows nothing
of attention, caches or steps.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging as transformers_logging

from shared.errors import ModelUnusable
from worker_service.engine.memory import limit_bytes, refuse_beyond_limit

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
_READ_BYTES = 1 << 22
_LENGTH_DEPENDENT_ROPE = {"dynamic", "longrope"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    network: Any  # a transformers model in eval mode, with its own attention
    config: Any  # the text part's configuration
    dtype: torch.dtype
    device: str
    weight_bytes: int
    fingerprint: str
    max_model_tokens: int
    eos_token_ids: tuple[int, ...]


def load_model(model_dir: Path, dtype: str, device: str) -> LoadedModel:
    """Raises ModelUnusable with one clear line for whatever does not let this folder be run."""
    weights = _weight_files(model_dir)
    if dtype not in DTYPES:
        raise ModelUnusable(f"dtype {dtype!r}: must be one of {', '.join(DTYPES)}")
    _check_device(device)
    config = _read_config(model_dir)
    _check_limit(config, dtype, device)
    network = _read_network(model_dir, dtype, device)
    text_config = config.get_text_config()
    if not getattr(text_config, "num_hidden_layers", None):
        raise ModelUnusable(f"{text_config.model_type}: the config names no layers")
    return LoadedModel(
        network=network,
        config=text_config,
        dtype=DTYPES[dtype],
        device=device,
        weight_bytes=_weight_bytes(network),
        fingerprint=_fingerprint(model_dir, weights, dtype),
        max_model_tokens=_max_model_tokens(text_config),
        eos_token_ids=_eos_token_ids(model_dir, text_config),
    )


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    found = re.fullmatch(r"cuda(?::(\d+))?", device)
    if found is None:
        raise ModelUnusable(f"device {device!r}: must be cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise ModelUnusable(f"device {device!r}: torch sees no CUDA device")
    num_devices = torch.cuda.device_count()
    if int(found[1] or 0) >= num_devices:
        raise ModelUnusable(f"device {device!r}: torch sees {num_devices} CUDA device(s), from 0")


def _weight_files(model_dir: Path) -> list[Path]:
    if not model_dir.is_dir():
        raise ModelUnusable(f"no model folder at {model_dir}")
    if not (model_dir / "config.json").is_file():
        raise ModelUnusable(f"{model_dir} has no config.json: not a Hugging Face model folder")
    files = sorted(model_dir.glob("*.safetensors"))
    if not files:
        raise ModelUnusable(f"{model_dir} has no *.safetensors: other weight files are not read")
    # transformers would say that they are not there.
    if closed := [file for file in files if not os.access(file, os.R_OK)]:
        raise ModelUnusable(f"{closed[0]}: user {os.getuid()} cannot read it")
    return files


def _read_config(model_dir: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    except Exception as error:  # whatever a broken or unknown folder makes transformers raise
        raise ModelUnusable(f"{model_dir}: {first_line(error)}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise ModelUnusable(f"{config.model_type}: encoder-decoder models are not supported")
    if getattr(config.get_text_config(), "is_causal", True) is False:
        raise ModelUnusable(f"{config.model_type}: is configured not to be causal")
    return config


def _check_limit(config: Any, dtype: str, device: str) -> None:
    """Before the weights are read, since the kernel would end the process in the middle of it."""
    if limit_bytes() is None:
        return
    try:
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, dtype=DTYPES[dtype]
            )
    except Exception:  # whatever is wrong with it is told when it is loaded
        return
    refuse_beyond_limit({f"the weights in {dtype}": _weight_bytes(empty)}, device)


def _weight_bytes(network: Any) -> int:
    return sum(weight.nbytes for weight in network.parameters())


def _read_network(model_dir: Path, dtype: str, device: str) -> Any:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    loaded: Any  # with output_loading_info a pair, which the library's types do not say
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            model_dir,
            dtype=DTYPES[dtype],
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # whatever a broken or unknown folder makes transformers raise
        raise ModelUnusable(f"{model_dir}: {first_line(error)}") from error
    network, info = loaded
    if absent := sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"])):
        raise ModelUnusable(f"{model_dir}: weights absent or of the wrong shape: {absent[0]}, ...")
    if getattr(network, "_is_stateful", False):
        raise ModelUnusable(
            f"{network.config.model_type}: layers with a running state are not supported"
        )
    return network.eval().requires_grad_(False).to(device)


def _max_model_tokens(config: Any) -> int:
    """Positions the model has.

    Where rotary angles change with the longest context of the batch: as far as they do not.
    """
    bounds: list[Any] = [getattr(config, "max_position_embeddings", None)]
    if bounds[0] is None:
        raise ModelUnusable(f"{config.model_type}: the config names no max_position_embeddings")
    rope = getattr(config, "rope_parameters", None) or {}
    for part in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if part.get("rope_type") in _LENGTH_DEPENDENT_ROPE:
            bounds.append(part.get("original_max_position_embeddings") or bounds[0])
    if bad := [bound for bound in bounds if type(bound) is not int or bound < 1]:
        raise ModelUnusable(f"{config.model_type}: a model cannot have {bad[0]!r} positions")
    shortest: int = min(bounds)
    return shortest


def _eos_token_ids(model_dir: Path, config: Any) -> tuple[int, ...]:
    """The generation config's, if it has any; else the model config's."""
    found = None
    if (model_dir / "generation_config.json").is_file():
        try:
            found = GenerationConfig.from_pretrained(model_dir, local_files_only=True).eos_token_id
        except Exception as error:  # whatever a broken file makes transformers raise
            raise ModelUnusable(f"{model_dir}: {first_line(error)}") from error
    if found is None:
        found = getattr(config, "eos_token_id", None)
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list | tuple) else (int(found),)


def _fingerprint(model_dir: Path, weights: list[Path], dtype: str) -> str:
    """SHA-256 over dtype, weights, config and tokenizer files, each with its name and length."""
    digest = hashlib.sha256(dtype.encode())
    others = [model_dir / name for name in ("config.json", *_TOKENIZER_FILES)]
    for path in [*weights, *(path for path in others if path.is_file())]:
        digest.update(f"\n{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
    return digest.hexdigest()


def first_line(error: Exception) -> str:
    """With the second where the first only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    if lines[0].endswith(":"):
        lines[0] = " ".join(lines[:2])
    return f"{type(error).__name__}: {lines[0]}"
