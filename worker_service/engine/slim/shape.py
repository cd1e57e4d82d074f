"""Is a model Llama-shaped, and with which numbers? Anything not known for certain is a no.

Judged by the config and by the names of the weights: a layer with one weight more than expected
computes something that this path does not. Knows nothing of how the numbers are used.
"""

from dataclasses import dataclass
from typing import Any

import torch

from worker_service.engine.kv_cache import LayerShape
from worker_service.engine.model_folder import LoadedModel

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3")  # angles depend on the position alone
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_UNUSUAL = (  # set to anything that counts as true, one of these changes the arithmetic
    "attention_bias",
    "mlp_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "attention_multiplier",
    "residual_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "num_experts",
    "num_local_experts",
    "quantization_config",
)
_LAYER_WEIGHTS = {
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
}
_QKV_BIASES = {f"self_attn.{part}_proj.bias" for part in "qkv"}
_QK_NORMS = {f"self_attn.{part}_norm.weight" for part in "qk"}
_OUTER_WEIGHTS = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimShape:
    """All that the forward pass needs to know beside the weights."""

    num_heads: int
    num_kv_heads: int
    head_width: int
    num_embeddings: int
    vocabulary: int  # width of the logits
    norm_epsilon: float
    windows: tuple[int | None, ...]  # for each layer: keys a query sees, its own included

    @property
    def scaling(self) -> float:
        """Of the attention scores."""
        return float(self.head_width**-0.5)

    def layer_shapes(self) -> tuple[LayerShape, ...]:
        """What each layer keeps for a token."""
        width = self.head_width
        layer = LayerShape(num_kv_heads=self.num_kv_heads, key_width=width, value_width=width)
        return (layer,) * len(self.windows)


@dataclass(frozen=True, slots=True)
class NotSlim:
    reason: str


def slim_shape(loaded: LoadedModel) -> SlimShape | NotSlim:
    """The model's shape, or why it has to go through transformers."""
    config = loaded.config
    if reason := _unusual_setting(loaded) or _unusual_rope(config) or _unusual_weights(loaded):
        return NotSlim(reason)
    windows = _windows(config)
    if isinstance(windows, NotSlim):
        return windows
    num_heads: int = config.num_attention_heads
    return SlimShape(
        num_heads=num_heads,
        num_kv_heads=config.num_key_value_heads,
        head_width=getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        num_embeddings=loaded.network.model.embed_tokens.num_embeddings,
        vocabulary=loaded.network.lm_head.weight.shape[0],
        norm_epsilon=config.rms_norm_eps,
        windows=windows,
    )


def _unusual_setting(loaded: LoadedModel) -> str:
    config = loaded.config
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is not one of {', '.join(FAMILIES)}"
    if loaded.device != "cpu" or loaded.dtype not in _DTYPES:
        return f"device {loaded.device}, {loaded.dtype}"
    if config.hidden_act != "silu":
        return f"hidden_act is {config.hidden_act}"
    if found := [name for name in _UNUSUAL if getattr(config, name, None)]:
        return f"{found[0]} is set"
    return ""


def _unusual_rope(config: Any) -> str:
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") not in ROPE_TYPES:
        return f"rope type {rope.get('rope_type')}"
    partial = rope.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None))
    return f"partial_rotary_factor is {partial}" if partial not in (None, 1.0) else ""


def _unusual_weights(loaded: LoadedModel) -> str:
    """Exactly the weights of the family, in every layer the same, and nothing else."""
    network, found = loaded.network, {name for name, _ in loaded.network.named_parameters()}
    found |= {"lm_head.weight"} if network.lm_head.weight is not None else set()  # if tied: unnamed
    layer_names = [{name for name, _ in layer.named_parameters()} for layer in network.model.layers]
    extras = layer_names[0] - _LAYER_WEIGHTS
    if not layer_names[0] >= _LAYER_WEIGHTS or extras not in (set(), _QKV_BIASES, _QK_NORMS):
        return f"weights of a layer: {', '.join(sorted(layer_names[0] ^ _LAYER_WEIGHTS))}"
    expected = _OUTER_WEIGHTS | {
        f"model.layers.{index}.{name}"
        for index in range(loaded.config.num_hidden_layers)
        for name in layer_names[0]
    }
    return f"weights {', '.join(sorted(found ^ expected)[:3])}" if found != expected else ""


def _windows(config: Any) -> tuple[int | None, ...] | NotSlim:
    """As transformers' models decide it: by the layer's type; Mistral, which has none, for all."""
    window: int | None = getattr(config, "sliding_window", None)
    num_layers: int = config.num_hidden_layers
    types = getattr(config, "layer_types", None)
    if types is None:
        return (window if config.model_type == "mistral" else None,) * num_layers
    if config.model_type in ("llama", "mistral") or len(types) != num_layers:
        return NotSlim(f"{config.model_type} with layer_types")
    if unknown := set(types) - {"full_attention", "sliding_attention"}:
        return NotSlim(f"layers of type {', '.join(sorted(unknown))}")
    if window is None and "sliding_attention" in types:
        return NotSlim("sliding layers without a window")
    return tuple(window if kind == "sliding_attention" else None for kind in types)
