"""Gains that must stay: how much faster than something real of the same run each hot part once was.

`ratios.json` keeps them; below half of one, `make bench` fails. `python -m bench --store` writes them
anew, on a quiet machine and for a reason that the commit tells.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RATIOS = Path(__file__).with_name("ratios.json")
LEAST_SHARE = 0.5  # machines are noisy, and their neighbours too


@dataclass(frozen=True, slots=True)
class Gain:
    name: str
    ms: float
    reference_ms: float

    @property
    def ratio(self) -> float:
        """Times as fast as the reference."""
        return self.reference_ms / self.ms


def losses(gains: list[Gain], stored: Mapping[str, float]) -> list[str]:
    """What has lost more than half of its stored gain, in words; also what was never stored."""
    found = []
    for gain in gains:
        before = stored.get(gain.name)
        if before is None:
            found.append(f"{gain.name}: no stored ratio (python -m bench --store)")
        elif gain.ratio < LEAST_SHARE * before:
            found.append(f"{gain.name}: {gain.ratio:.2f} times its reference, was {before:.2f}")
    return found


def read(path: Path = RATIOS) -> dict[str, float]:
    return {name: float(ratio) for name, ratio in json.loads(path.read_text()).items()}


def write(gains: list[Gain], path: Path = RATIOS) -> None:
    ratios = {gain.name: round(gain.ratio, 3) for gain in gains}
    path.write_text(json.dumps(ratios, indent=2) + "\n")
