"""A request as the first submit decided it: what the store keeps and every replica reads back."""

from dataclasses import dataclass

from shared.types import SamplingParams, StopRules, TokenIds


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    prompt_ids: TokenIds
    sampling: SamplingParams
    stop: StopRules
    stop_strings: tuple[str, ...] = ()
    include_stop: bool = False
    cache_salt: bytes = b""
    cancel_on_disconnect: bool = True
    disconnect_grace_ms: int = 0
    model: str = ""
