"""A tiny tokenizer made on the spot, for a simulated worker that is given no model folder."""

import json
from pathlib import Path

START, END = "<|im_start|>", "<|im_end|>"
NUM_PRINTABLE = 94  # the first ids: ASCII's printable characters, so that outputs are readable
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tokenizer_folder(folder: Path, max_model_tokens: int) -> None:
    """Byte-level, one token a byte, a chat template, and a config.json with the vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: token_id for token_id, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(START), AddedToken(END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {"bos_token": START, "eos_token": END, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    config = {
        "vocab_size": tokenizer.get_vocab_size(),
        "eos_token_id": tokenizer.token_to_id(END),
        "max_position_embeddings": max_model_tokens,
    }
    (folder / "config.json").write_text(json.dumps(config))
