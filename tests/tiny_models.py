"""Tiny random models of many families, made on the spot. Knows nothing of engines."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PhiConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 211
MAX_TOKENS = 256  # positions
WINDOW = 24  # of the sliding-window families: shorter than the tests' prompts

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.3,  # wide, so that greedy output varies
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GATED: dict[str, Any] = {**_COMMON, "intermediate_size": 64, "num_key_value_heads": 2}
_GEMMA: dict[str, Any] = {**_GATED, "head_dim": 16}

CONFIGS: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, _GATED),
    "qwen2": (Qwen2Config, _GATED),
    "qwen3": (Qwen3Config, {**_GATED, "head_dim": 16}),
    "mistral": (MistralConfig, {**_GATED, "sliding_window": WINDOW}),
    "gemma": (GemmaConfig, _GEMMA),
    "gemma2": (
        Gemma2Config,
        {
            **_GEMMA,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 16,
            "attn_logit_softcapping": 5.0,
            "tie_word_embeddings": False,
        },
    ),
    "gemma3": (
        Gemma3TextConfig,
        {
            **_GEMMA,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 16,
            "tie_word_embeddings": False,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "phi": (PhiConfig, {**_GATED, "partial_rotary_factor": 0.5}),
    "opt": (OPTConfig, {**_COMMON, "ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3}),
    "gpt2": (GPT2Config, _COMMON),
}
FAMILIES = tuple(CONFIGS)


def tiny_model_dir(parent: Path, family: str = "llama", seed: int = 0, **changes: Any) -> Path:
    """A folder with a random model of this family; made once for a parent folder and arguments."""
    name = "-".join([family, str(seed), *(f"{key}={value}" for key, value in changes.items())])
    folder = parent / name
    if not folder.exists():
        tiny_model(family, seed, **changes).save_pretrained(folder)
    return folder


def tiny_model(family: str = "llama", seed: int = 0, **changes: Any) -> Any:
    config_class, settings = CONFIGS[family]
    config = config_class(**{**settings, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.eos_token_id = None  # the tests say themselves where to stop
    return model.eval()
