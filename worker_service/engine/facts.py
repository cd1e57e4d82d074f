"""What an engine is: fixed once it is loaded. Knows nothing of how it came about."""

from dataclasses import dataclass

from shared.types import TokenIds


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    model_name: str
    fingerprint: str  # SHA-256 in hexadecimal: weights, dtype, config, tokenizer files
    dtype: str
    device: str  # a label for people
    block_size: int
    num_blocks: int
    max_model_tokens: int
    logits_width: int
    eos_token_ids: TokenIds
    max_step_tokens: int  # 0 = no limit
    max_sequences: int
