"""From the worker's settings to a simulated engine and the folder whose tokenizer it serves."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shared.errors import ModelUnusable, SettingError
from shared.lengths import Lengths
from shared.profiles import Profile, load_profile
from worker_service.config import WorkerSettings
from worker_service.engine.facts import ModelFacts
from worker_service.simulated.engine import SimulatedEngine
from worker_service.simulated.tokenizer_folder import NUM_PRINTABLE, write_tokenizer_folder
from worker_service.simulated.tokens import SimulatedText

# They choose how a real model is computed.
_WITHOUT_EFFECT = (
    "dtype",
    "device",
    "kv_memory_share",
    "threads",
    "forward",
    "weights",
    "kernels",
)


def check_simulated(settings: WorkerSettings) -> None:
    """Raises SettingError: what has no effect on a simulated worker is refused."""
    given = [name for name in _WITHOUT_EFFECT if name in settings.model_fields_set]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise SettingError(f"{flags}: no effect with --simulate")
    _lengths(settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What an engine has to know of the tokenizer that its worker serves."""

    vocabulary: int  # ids are below it
    num_sampled_ids: int  # those that simulated outputs are made of are below it
    eos_token_ids: tuple[int, ...]
    fingerprint: str  # SHA-256 in hexadecimal; a pool takes only workers of one

    @classmethod
    def of_folder(cls, folder: Path, profile: Profile, *, is_tiny: bool) -> Self:
        """Raises ModelUnusable."""
        config = _read_json(folder / "config.json")
        vocabulary = config.get("vocab_size")
        if not isinstance(vocabulary, int) or vocabulary < 1:
            raise ModelUnusable(f"{folder}: its config.json has no vocab_size")
        digest = hashlib.sha256(f"simulated\n{profile.model}\n{profile.dtype}\n".encode())
        digest.update((folder / "tokenizer.json").read_bytes())
        return cls(
            vocabulary=vocabulary,
            num_sampled_ids=NUM_PRINTABLE if is_tiny else vocabulary,
            eos_token_ids=_eos_token_ids(config, folder),
            fingerprint=digest.hexdigest(),
        )


def load(settings: WorkerSettings, made: Path) -> tuple[SimulatedEngine, Path]:
    """The engine, and the folder whose tokenizer is served: the one given, or a tiny one, made in
    `made`. Raises SettingError, ModelUnusable."""
    profile = load_profile(settings.simulate)
    folder = Path(settings.model) if settings.model else made
    if not settings.model:
        write_tokenizer_folder(made, profile.max_model_tokens)
    tokenizer = TokenizerFacts.of_folder(folder, profile, is_tiny=not settings.model)
    return simulated_engine(settings, profile, tokenizer), folder


def simulated_engine(
    settings: WorkerSettings, profile: Profile, tokenizer: TokenizerFacts
) -> SimulatedEngine:
    """Raises SettingError."""
    given = settings.model_fields_set
    block_size = settings.block_size if "block_size" in given else profile.block_size
    num_blocks = _num_blocks(settings, profile, block_size)
    facts = ModelFacts(
        model_name=settings.model_name or profile.model,
        fingerprint=tokenizer.fingerprint,
        dtype=profile.dtype,
        device=f"simulated ({profile.device})",
        block_size=block_size,
        num_blocks=num_blocks,
        max_model_tokens=profile.max_model_tokens,
        logits_width=tokenizer.vocabulary,
        eos_token_ids=tokenizer.eos_token_ids,
        max_step_tokens=settings.max_step_tokens,
        max_sequences=settings.max_sequences,
    )
    return SimulatedEngine(
        facts,
        profile.costs,
        SimulatedText(vocabulary=tokenizer.num_sampled_ids, lengths=_lengths(settings)),
        kv_bytes=num_blocks * block_size * profile.kv_bytes_per_token,
        prefix_cache=settings.prefix_cache,
    )


def _num_blocks(settings: WorkerSettings, profile: Profile, block_size: int) -> int:
    num_blocks = settings.num_blocks
    if not num_blocks and settings.kv_memory:
        num_blocks = settings.kv_memory // (profile.kv_bytes_per_token * block_size)
        if not num_blocks:
            raise SettingError(f"--kv-memory {settings.kv_memory}: not one block of {profile.name}")
    return num_blocks or profile.num_blocks * profile.block_size // block_size


def _eos_token_ids(config: dict[str, Any], folder: Path) -> tuple[int, ...]:
    """The generation config's, if it has any; else the model config's."""
    path = folder / "generation_config.json"
    generation = _read_json(path) if path.is_file() else {}
    found = generation.get("eos_token_id", config.get("eos_token_id"))
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list) else (int(found),)


def _lengths(settings: WorkerSettings) -> Lengths | None:
    if not settings.simulate_lengths:
        return None
    try:
        return Lengths.parse(settings.simulate_lengths)
    except ValueError as error:
        raise SettingError(f"--simulate-lengths: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelUnusable(f"{path} holds no JSON object")
    return found
