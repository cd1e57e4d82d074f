"""The check at load: of every model, however short its contexts are."""

from pathlib import Path

import pytest
from tiny_models import tiny_model_dir

from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig
from worker_service.engine.self_check import CHUNKS, chunk_sizes


@pytest.mark.parametrize(
    ("max_model_tokens", "sizes"),
    [(1, (1,)), (2, (1, 1)), (10, (9, 1)), (16, (9, 6, 1)), (24, CHUNKS), (10**9, CHUNKS)],
)
def test_the_last_token_is_computed_by_itself_within_the_models_positions(
    max_model_tokens: int, sizes: tuple[int, ...]
) -> None:
    assert chunk_sizes(max_model_tokens) == sizes


@pytest.mark.parametrize("forward", ["auto", "transformers"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_with_few_positions_is_checked_and_runs(
    tmp_path: Path, family: str, forward: str
) -> None:
    folder = tiny_model_dir(tmp_path, family, max_position_embeddings=16)

    engine = Engine.load(EngineConfig(model_dir=folder, num_blocks=4, forward=forward))

    assert engine.facts.max_model_tokens == 16
