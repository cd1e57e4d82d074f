"""A causal language model of a Hugging Face folder, its attention replaced by ours.

Every engine registers an attention function of its own name with transformers; it reaches the step
through the object bound here, so engines of one process never mix. What a model's layers ask of
their attention is found by running them once (`_probe`); what we cannot do is refused at load.
Knows nothing of sequences, blocks or sampling.

T tokens in the step, H query heads, K key/value heads, D head width, R rows that sample,
V vocabulary.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from shared.errors import ModelUnusable
from worker_service.engine.attention.reference import AttentionOptions, attend
from worker_service.engine.batch_input import StepInput
from worker_service.engine.kv_cache import KVCache, LayerShape
from worker_service.engine.model_folder import LoadedModel

# (layer index, query_THD, key_TKD, value_TKD, options) -> out_THD
Attend = Callable[[int, Tensor, Tensor, Tensor, AttentionOptions], Tensor]

_names = count()
_UNSUPPORTED = ("s_aux", "sinks", "learnable_sink", "position_bias", "alibi", "attn_bias")
_LAYER_TYPES = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    logits_RV: Tensor  # in the model's dtype
    is_finite_T: Tensor  # bool, of each token: whether the last layer's attention came out finite


class StepModel(Protocol):
    """A model that computes steps over the paged cache, by whichever path."""

    num_embeddings: int  # token ids are [0, num_embeddings)
    layers: tuple[LayerShape, ...]
    logits_width: int
    path: str  # how it computes, for people
    bytes_per_position: int  # kept beside the cache once a sequence has reached it

    def forward(self, step: StepInput, cache: KVCache) -> Output:
        """Compute the step's tokens; their keys and values are in the cache afterwards."""


class PagedModel:
    """A network whose attention reads and writes the paged cache."""

    path = "transformers, reference attention"
    bytes_per_position = 0

    def __init__(self, loaded: LoadedModel) -> None:
        self._network = loaded.network
        self._device = loaded.device
        self._socket = _Socket(loaded.config)
        _plug_in(loaded.network, self._socket)
        self.num_embeddings: int = loaded.network.get_input_embeddings().num_embeddings
        self.layers, self.logits_width = self._probe(loaded.config)

    def forward(self, step: StepInput, cache: KVCache) -> Output:
        """Compute the step's tokens; their keys and values are in the cache afterwards."""
        last_layer = len(self.layers) - 1
        finite: list[Tensor] = []

        def attend_paged(
            layer: int,
            query_THD: Tensor,
            key_TKD: Tensor,
            value_TKD: Tensor,
            options: AttentionOptions,
        ) -> Tensor:
            cache.layers[layer].write(step.slot_T, key_TKD, value_TKD)
            out_THD = attend(query_THD, cache.layers[layer], step.groups, options)
            if layer == last_layer:
                # NaN or infinity of any layer below comes through to here
                finite.append(out_THD.sum((-1, -2), dtype=torch.float32).isfinite())
            return out_THD

        logits_RV = self._run(step.token_ids_T, step.position_T, step.sample_token_R, attend_paged)
        return Output(logits_RV=logits_RV, is_finite_T=finite[0])

    def _run(
        self, token_ids_T: Tensor, position_T: Tensor, keep_R: Tensor, attend_step: Attend
    ) -> Tensor:
        with torch.inference_mode(), self._socket.plugged(attend_step):
            output = self._network(
                input_ids=token_ids_T.unsqueeze(0),
                position_ids=position_T.unsqueeze(0),
                use_cache=False,
                logits_to_keep=keep_R,
            )
        logits_RV: Tensor = output.logits.squeeze(0)
        return logits_RV

    def _probe(self, config: Any) -> tuple[tuple[LayerShape, ...], int]:
        """Run three tokens to see what each layer keeps, and that only wanted rows give logits."""
        shapes: dict[int, LayerShape] = {}

        def record(
            layer: int,
            query_THD: Tensor,
            key_TKD: Tensor,
            value_TKD: Tensor,
            options: AttentionOptions,
        ) -> Tensor:
            _, num_kv_heads, key_width = key_TKD.shape
            shapes[layer] = LayerShape(
                num_kv_heads=num_kv_heads, key_width=key_width, value_width=value_TKD.shape[-1]
            )
            return query_THD.new_zeros(*query_THD.shape[:2], value_TKD.shape[-1])

        tokens = torch.arange(3, device=self._device)  # int64
        logits = self._run(tokens, tokens, tokens[1:], record)
        if sorted(shapes) != list(range(config.num_hidden_layers)):
            raise ModelUnusable(
                f"{config.model_type}: {len(shapes)} of {config.num_hidden_layers} layers go "
                "through transformers' attention interface; all must"
            )
        if logits.shape[0] != 2:
            raise ModelUnusable(f"{config.model_type}: gives no logits for chosen rows alone")
        return tuple(shapes[layer] for layer in sorted(shapes)), logits.shape[-1]


class _Socket:
    """Where the network's attention calls arrive. Holds the step only while it runs."""

    def __init__(self, config: Any) -> None:
        self._layer_types: list[str] | None = getattr(config, "layer_types", None)
        self._window: int | None = getattr(config, "sliding_window", None)
        self._attend: Attend | None = None

    def plugged(self, attend_step: Attend) -> "_Socket":
        self._attend = attend_step
        return self

    def __enter__(self) -> None:
        assert self._attend is not None

    def __exit__(self, *_: object) -> None:
        self._attend = None

    def attention(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        _mask: Tensor | None,
        **asked: Any,
    ) -> tuple[Tensor, None]:
        """What transformers calls, with query [1, H, T, D], key and value [1, K, T, D].

        Answers [1, T, H, D].
        """
        assert self._attend is not None, "attention outside a step"
        if unknown := [name for name in _UNSUPPORTED if asked.get(name) is not None]:
            raise ModelUnusable(f"attention with {', '.join(unknown)} is not supported")
        if asked.get("is_causal") is False:
            raise ModelUnusable("attention that is not causal is not supported")
        options = AttentionOptions(
            scaling=asked["scaling"] if asked.get("scaling") else query.shape[-1] ** -0.5,
            window=self._window_of(module.layer_idx, asked.get("sliding_window")),
            softcap=asked.get("softcap"),
        )
        query_THD, key_TKD, value_TKD = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
        out_THD = self._attend(module.layer_idx, query_THD, key_TKD, value_TKD, options)
        return out_THD.unsqueeze(0), None

    def _window_of(self, layer: int, asked: int | None) -> int | None:
        """The layer's type, where the config has one, decides; else what the layer asks for."""
        if self._layer_types is None:
            return asked
        if self._layer_types[layer] not in _LAYER_TYPES:
            raise ModelUnusable(f"layers of type {self._layer_types[layer]} are not supported")
        is_sliding = self._layer_types[layer] == "sliding_attention"
        return (asked or self._window) if is_sliding else None


def _plug_in(network: Any, socket: _Socket) -> None:
    """Give the network our attention, under a name that goes when the network goes."""
    name = f"tokentide_{next(_names)}"
    AttentionInterface.register(name, socket.attention)
    AttentionMaskInterface.register(name, _no_mask)
    weakref.finalize(network, _unregister, name)
    network.set_attn_implementation(name)
    if network.config._attn_implementation != name:
        raise ModelUnusable(f"{network.config.model_type}: attention cannot be replaced")


def _unregister(name: str) -> None:
    AttentionInterface._global_mapping.pop(name, None)
    AttentionMaskInterface._global_mapping.pop(name, None)


def _no_mask(*_: Any, **__: Any) -> None:
    """Masks come from the step's positions."""
