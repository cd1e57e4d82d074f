"""Fixtures only: the tiny model's folder, and running stacks that several tests share."""

from pathlib import Path

import pytest
from running_stack import running_stack


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama with a byte-level tokenizer: real in every part but its sense."""
    from tiny_models import tiny_model_dir
    from tiny_tokenizers import write_tokenizer_folder

    folder = tiny_model_dir(
        tmp_path_factory.mktemp("tiny"), "llama", vocab_size=272, max_position_embeddings=2048
    )
    write_tokenizer_folder(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_stack(tiny_model_folder: Path):
    """Two schedulers and two workers on the tiny model."""
    from tokentide.local_stack import StackSpec

    spec = StackSpec(
        model_dir=tiny_model_folder,
        num_workers=2,
        num_schedulers=2,
        appendfsync="always",
        worker_args=("--num-blocks", "256", "--threads", "1", "--model-name", "tiny"),
        scheduler_args=("--token-budget", "256", "--disconnect-grace-ms", "300"),
    )
    with running_stack(spec) as stack:
        yield stack
