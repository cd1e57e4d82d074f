"""A request before it is accepted: what a client sent, what may be asked for, what came of it.

Values only; `validation` judges them. Knows nothing of protobuf.
"""

from dataclasses import dataclass

from shared.blocks import blocks_to_run
from shared.types import TokenIds


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What one request, or one call, may ask for. All are inclusive."""

    default_max_tokens: int = 256  # where the client names none; less where less fits
    max_prompt_chars: int = 1_000_000
    max_prompt_ids: int = 1_000_000
    max_chat_messages: int = 4096
    max_role_chars: int = 64
    max_temperature: float = 100.0
    max_stop_strings: int = 16
    max_stop_chars: int = 256  # of one stop string
    max_stop_token_ids: int = 64
    max_priority: int = 1000  # either way
    max_timeout_ms: int = 7 * 24 * 3_600_000
    max_disconnect_grace_ms: int = 24 * 3_600_000
    default_disconnect_grace_ms: int = 10_000
    max_salt_chars: int = 256
    max_cancelled_ids: int = 10_000  # in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    """What a client sent, as it sent it. None = left out. Exactly one prompt of three is given."""

    request_id: str = ""  # empty = to be drawn
    model: str = ""  # empty = the model that is served
    text: str | None = None
    chat: tuple[tuple[str, str], ...] | None = None  # (role, content)
    prompt_ids: TokenIds | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: TokenIds = ()
    ignore_eos: bool = False
    include_stop: bool = False
    priority: int = 0
    tenant: str = ""
    timeout_ms: int = 0  # 0 = none
    queue_timeout_ms: int = 0  # 0 = the queue policy's own
    on_disconnect: str = "cancel"  # cancel, finish
    disconnect_grace_ms: int | None = None
    cache_salt: str = ""  # empty = the tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """A request whose fields are all in range, with the defaults filled in."""

    request_id: str  # empty = to be drawn
    model: str
    text: str | None
    chat: tuple[tuple[str, str], ...] | None
    prompt_ids: TokenIds | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None  # None = to be drawn
    max_tokens: int | None  # None = `check_length` decides
    min_tokens: int
    stop: tuple[str, ...]  # without repetitions
    stop_token_ids: TokenIds
    ignore_eos: bool
    include_stop: bool
    priority: int
    tenant: str
    timeout_ms: int
    queue_timeout_ms: int
    finish_on_disconnect: bool
    disconnect_grace_ms: int
    cache_salt: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one worker can hold."""

    block_size: int
    num_blocks: int
    max_model_tokens: int

    def fits(self, num_prompt_tokens: int, max_tokens: int) -> bool:
        return (
            num_prompt_tokens + max_tokens <= self.max_model_tokens
            and blocks_to_run(num_prompt_tokens, max_tokens, self.block_size) <= self.num_blocks
        )

    @property
    def max_request_tokens(self) -> int:
        """Prompt and output tokens that one request may have: the same formula, turned round."""
        return min(self.max_model_tokens, self.num_blocks * self.block_size + 1)
