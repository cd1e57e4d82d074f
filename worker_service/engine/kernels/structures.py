"""The argument blocks of kernels.c, field by field in its order. A test compares their sizes."""

import ctypes

_pointer = ctypes.c_void_p
_int = ctypes.c_int64
_float = ctypes.c_float


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class Product(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "x weights bias y"),
        *_fields(_int, "x_stride y_stride rows inner columns epilogue kind"),
    ]


class Attention(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "query keys values out block_table first count start"),
        *_fields(_pointer, "order unit_first unit_count unit_shared"),
        *_fields(_int, "num_units query_stride out_stride table_stride"),
        *_fields(_int, "num_sequences num_heads num_kv_heads width block_size window"),
        *_fields(_float, "scaling softcap"),
    ]


class Norm(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "x added weight y"),
        *_fields(_int, "rows width"),
        *_fields(_float, "epsilon"),
    ]


class Rotary(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "qkv keys values cosine sine position slot query_norm key_norm"),
        *_fields(_int, "rows num_heads num_kv_heads width qkv_stride"),
        *_fields(_float, "epsilon"),
    ]


class Highest(ctypes.Structure):
    _fields_ = [*_fields(_pointer, "rows index is_finite"), *_fields(_int, "num_rows width")]


class Weight(ctypes.Structure):
    _fields_ = [*_fields(_pointer, "panels bias"), *_fields(_int, "kind")]


class Layer(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "attention_norm mlp_norm query_norm key_norm"),
        *_fields(Weight, "qkv out gate_up down"),
        *_fields(_pointer, "keys values"),
        *_fields(_int, "window"),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "embedding norm"),
        ("head", Weight),
        ("layers", ctypes.POINTER(Layer)),
        *_fields(_int, "num_layers model_width num_heads num_kv_heads width gated_width"),
        *_fields(_int, "vocabulary block_size"),
        *_fields(_float, "epsilon scaling softcap"),
    ]


class Step(ctypes.Structure):
    _fields_ = [
        *_fields(_pointer, "token_ids position slot cosine sine block_table first count start"),
        *_fields(_pointer, "order unit_first unit_count unit_shared"),
        *_fields(_pointer, "sample_token x normed qkv attended gated logits is_finite"),
        *_fields(_int, "num_tokens num_sequences num_samples num_units table_stride"),
    ]


# in the order of tk_size_of
ALL = (Product, Attention, Norm, Rotary, Highest, Layer, Model, Step)
