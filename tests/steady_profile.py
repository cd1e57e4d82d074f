"""A device for simulated workers on which steps take about the same time, whatever is in them."""

import json
from pathlib import Path

from shared.cost_model import CostModel
from shared.profiles import Profile

MAX_MODEL_TOKENS = 4096


def write_steady_profile(path: Path, step_ms: float) -> Path:
    """Each step takes so long, one with a long prompt a little longer."""
    profile = Profile(
        name="steady",
        model="steady",
        device="none",
        dtype="float32",
        block_size=16,
        num_blocks=2048,
        max_model_tokens=MAX_MODEL_TOKENS,
        kv_bytes_per_token=1,
        costs=CostModel(base_ns=step_ms * 1e6, per_token_ns=10_000, free_tokens=64),
    )
    path.write_text(json.dumps(profile.as_dict()))
    return path
