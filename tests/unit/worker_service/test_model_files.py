"""A folder that no scheduler could use is refused by the worker, with one line."""

from pathlib import Path

import pytest
from tiny_tokenizers import write_tokenizer_folder

from shared.errors import ModelUnusable
from worker_service.model_files import check_model_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return write_tokenizer_folder(tmp_path)


def refusal(folder: Path) -> str:
    with pytest.raises(ModelUnusable) as caught:
        check_model_files(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    return message


def test_a_whole_folder_is_taken(folder: Path) -> None:
    check_model_files(folder)


def test_no_folder(tmp_path: Path) -> None:
    assert "no model folder" in refusal(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_an_absent_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()

    assert f"has no {name}" in refusal(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "special_tokens_map.json"]
)
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_file_that_cannot_be_read_is_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)

    assert f"{name} cannot be read" in refusal(folder)


def test_a_template_that_is_no_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff")

    assert "chat_template.jinja cannot be read" in refusal(folder)


def test_json_that_is_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")

    assert "tokenizer.json is no tokenizer" in refusal(folder)
