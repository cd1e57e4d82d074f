"""How a GGUF file wants its text split before byte-pair merging.

transformers' own reader knows some of these names and silently takes the GPT-2 split for the
others; a wrong split gives other ids than the model was trained on. Knows nothing of weights.
"""

from pathlib import Path
from typing import Any

_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

_DIGITS = "every digit alone"
_EVERY_DIGIT_ALONE = (_DIGITS, _GPT2_SPLIT)

# `tokenizer.ggml.pre` -> splits applied one after the other, as llama.cpp has them.
SPLITS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2_SPLIT, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "smollm": _EVERY_DIGIT_ALONE,
    "starcoder": _EVERY_DIGIT_ALONE,
    "refact": _EVERY_DIGIT_ALONE,
    "command-r": _EVERY_DIGIT_ALONE,
    "codeshell": _EVERY_DIGIT_ALONE,
    "exaone": _EVERY_DIGIT_ALONE,
    "minerva-7b": _EVERY_DIGIT_ALONE,
    "gpt-2": (_GPT2_SPLIT,),
    "gpt2": (_GPT2_SPLIT,),
    "phi-2": (_GPT2_SPLIT,),
    "mpt": (_GPT2_SPLIT,),
    "olmo": (_GPT2_SPLIT,),
    "jais": (_GPT2_SPLIT,),
    "llama3": (_LLAMA3_SPLIT,),
    "llama-v3": (_LLAMA3_SPLIT,),
    "llama-bpe": (_LLAMA3_SPLIT,),
    "falcon3": (_LLAMA3_SPLIT,),
    "qwen2": (_QWEN2_SPLIT,),
    "deepseek-r1-qwen": (_QWEN2_SPLIT,),
}


def set_pre_tokenizer(tokenizer_file: Path, name: str | None) -> str | None:
    """Make a byte-level tokenizer.json split text as `name` says. Returns a warning if unsure."""
    from tokenizers import Tokenizer  # noqa: PLC0415 (only the conversion needs it)

    splits = SPLITS.get(name or "default")
    if splits is None:
        return (
            f"the file's pre-tokenizer {name!r} is not known here: text is split as transformers "
            "does it, which may give other token ids than the model was trained on"
        )
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.pre_tokenizer = _pre_tokenizer(splits)
    tokenizer.save(str(tokenizer_file))
    if name is None:
        return "the file names no pre-tokenizer: llama.cpp's default may not be the model's"
    return None


def _pre_tokenizer(splits: tuple[str, ...]) -> Any:  # the tokenizers library has no types
    from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415

    # ByteLevel brings the GPT-2 split itself
    own_split = splits[-1] == _GPT2_SPLIT
    parts: list[Any] = [
        pre_tokenizers.Digits(individual_digits=True)
        if split == _DIGITS
        else pre_tokenizers.Split(Regex(split), behavior="isolated")
        for split in (splits[:-1] if own_split else splits)
    ]
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_split))
    return pre_tokenizers.Sequence(parts)
