"""Text is split as the GGUF file says."""

import pytest
from tiny_tokenizers import byte_level_tokenizer
from tokenizers import Tokenizer

from tokentide.gguf_tokenizer import SPLITS, set_pre_tokenizer


def pieces(path, name, text) -> list[str]:
    byte_level_tokenizer().save(str(path))
    assert set_pre_tokenizer(path, name) is None
    split = Tokenizer.from_file(str(path)).pre_tokenizer.pre_tokenize_str(text)
    return [piece.replace("Ġ", " ") for piece, _ in split]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm", ["in", " ", "2", "0", "2", "5", " we", "'ll"]),
        ("gpt-2", ["in", " 2025", " we", "'ll"]),
        ("llama-bpe", ["in", " ", "202", "5", " we", "'ll"]),
        ("qwen2", ["in", " ", "2", "0", "2", "5", " we", "'ll"]),
        ("default", ["in", " ", "202", "5", " we", "'", "ll"]),
    ],
)
def test_known_names_split_as_llama_cpp_does(tmp_path, name, expected):
    assert pieces(tmp_path / "tokenizer.json", name, "in 2025 we'll") == expected


@pytest.mark.parametrize("name", list(SPLITS))
def test_no_split_loses_text(tmp_path, name):
    text = "a  1234 b_c's\n\n\tx99 +$ end "

    assert "".join(pieces(tmp_path / "t.json", name, text)) == text.replace("\n", "Ċ").replace(
        "\t", "ĉ"
    )


def test_an_unknown_name_leaves_the_file_alone_and_warns(tmp_path):
    path = tmp_path / "tokenizer.json"
    byte_level_tokenizer().save(str(path))
    before = path.read_bytes()

    warning = set_pre_tokenizer(path, "brand-new")

    assert warning is not None and "'brand-new'" in warning
    assert path.read_bytes() == before


def test_no_name_means_the_default_with_a_warning(tmp_path):
    path = tmp_path / "tokenizer.json"
    byte_level_tokenizer().save(str(path))

    assert "names no pre-tokenizer" in (set_pre_tokenizer(path, None) or "")
