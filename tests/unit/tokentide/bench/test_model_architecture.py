"""The size of a model, read from files that hold no weights."""

from pathlib import Path

from model_heads import SHAPES, write_model_heads

from tokentide.bench.model_architecture import architecture_of


def test_a_tied_embedding_is_the_head(tmp_path: Path) -> None:
    architecture = architecture_of(write_model_heads(tmp_path, SHAPES), "bfloat16")

    assert architecture is not None
    assert architecture.num_body_parameters == 240
    assert architecture.num_head_parameters == 800
    assert architecture.num_other_parameters == 0
    assert architecture.kv_bytes_per_token == 2 * 3 * 2 * 2 * 2


def test_a_head_of_its_own_leaves_the_embedding_unread(tmp_path: Path) -> None:
    shapes = {**SHAPES, "lm_head.weight": [100, 8], "model.embed_positions.weight": [5, 8]}

    architecture = architecture_of(write_model_heads(tmp_path, shapes), "float32")

    assert architecture is not None
    assert architecture.num_body_parameters == 240
    assert architecture.num_head_parameters == 800
    assert architecture.num_other_parameters == 840


def test_a_folder_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert architecture_of(tmp_path, "float32") is None
