"""The small files of a model folder: what a scheduler asks for, and whether all of it can be used.

Asked before anything is loaded, since a scheduler could only find out again and again. Knows nothing
of torch, grpc or weights.
"""

import json
from pathlib import Path

from shared.errors import ModelUnusable

# What a scheduler needs to tokenize and to render chats; never weights.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
_REQUIRED = {
    "config.json": "not a Hugging Face model folder",
    "tokenizer.json": "no scheduler could read a prompt (tokenizer.model alone will not do)",
}


def check_model_files(folder: Path) -> None:
    """Raises ModelUnusable with one clear line that names the folder and the file."""
    if not folder.is_dir():
        raise ModelUnusable(f"no model folder at {folder}")
    for name, why in _REQUIRED.items():
        if not (folder / name).is_file():
            raise ModelUnusable(f"{folder} has no {name}: {why}")
    for name in TOKENIZER_FILES:
        if (folder / name).is_file():
            try:
                _check_file(folder / name)
            except (OSError, ValueError) as error:
                raise ModelUnusable(f"{folder}: {name} cannot be read: {_line(error)}") from error
    _check_tokenizer(folder)


def _check_file(path: Path) -> None:
    data = path.read_bytes()
    if path.suffix == ".model":
        return  # binary
    text = data.decode("utf-8")
    if path.suffix == ".json" and not isinstance(json.loads(text), dict):
        raise ValueError("it holds no JSON object")


def _check_tokenizer(folder: Path) -> None:
    """By reading it as a scheduler will."""
    from tokenizers import Tokenizer  # noqa: PLC0415 (slow to import)

    try:
        Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises bare Exception for a file it cannot read
        raise ModelUnusable(f"{folder}: tokenizer.json is no tokenizer: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
