"""What is asked of the service in a benchmark: drawn from a seed, or read from JSON lines.

The same seed and settings give the same requests. Knows nothing of how they are sent.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.lengths import Lengths

MIN_RANDOM_ID = 16  # below are special tokens in most vocabularies
DEFAULT_VOCABULARY = 1000  # ids that nearly every vocabulary has
_TEXT = (
    "the time of a year people way day man thing woman life child world school state "
    "family group country problem hand part place case week company system number "
    "night point home water room mother money story fact month study "
)
WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRequest:
    """One request: a text or token ids, and when it arrives after the start of the load."""

    prompt: str | tuple[int, ...]
    max_tokens: int
    ignore_eos: bool = True
    arrival_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        key = "prompt" if isinstance(self.prompt, str) else "prompt_ids"
        return {
            "arrival_s": round(self.arrival_s, 6),
            key: self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": self.ignore_eos,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    num_requests: int
    prompt_lengths: Lengths
    output_lengths: Lengths
    shared_prefix: int = 0  # tokens that all prompts begin with, beside their own length
    text: bool = False  # words instead of random token ids; lengths then count words
    ignore_eos: bool = True
    vocabulary: int = DEFAULT_VOCABULARY
    rate: float | None = None  # requests a second; None: all at 0
    burstiness: float = 1.0  # 1 = Poisson; below: bursts; above: more even
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_requests < 1:
            raise ValueError("at least one request is needed")
        if self.vocabulary <= MIN_RANDOM_ID:
            raise ValueError(f"the vocabulary must have more than {MIN_RANDOM_ID} ids")
        if (self.rate is not None and self.rate <= 0) or self.burstiness <= 0:
            raise ValueError("rate and burstiness must be above 0")


def make_workload(spec: WorkloadSpec) -> list[WorkRequest]:
    """Lengths, contents and arrivals come from sources of their own: changing one keeps the others."""
    lengths = random.Random(f"{spec.seed}/lengths")
    contents = random.Random(f"{spec.seed}/contents")
    arrivals = random.Random(f"{spec.seed}/arrivals")
    prefix = _tokens(contents, spec, spec.shared_prefix)
    arrival_s = 0.0
    requests = []
    for _ in range(spec.num_requests):
        if spec.rate is not None:
            arrival_s += _gap_s(arrivals, spec.rate, spec.burstiness)
        own = _tokens(contents, spec, spec.prompt_lengths.draw(lengths))
        request = WorkRequest(
            prompt=_joined(spec, prefix + own),
            max_tokens=spec.output_lengths.draw(lengths),
            ignore_eos=spec.ignore_eos,
            arrival_s=arrival_s,
        )
        requests.append(request)
    return requests


def read_workload(path: Path) -> list[WorkRequest]:
    """Raises ValueError with the line that is wrong."""
    requests = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            requests.append(_from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: no request: {error}") from error
    if not requests:
        raise ValueError(f"{path}: no requests")
    return sorted(requests, key=lambda request: request.arrival_s)


def write_workload(path: Path, requests: Iterable[WorkRequest]) -> None:
    path.write_text("".join(f"{json.dumps(request.as_json())}\n" for request in requests))


def _from_json(line: dict[str, Any]) -> WorkRequest:
    unknown = set(line) - {"prompt", "prompt_ids", "max_tokens", "ignore_eos", "arrival_s"}
    if unknown:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    if ("prompt" in line) == ("prompt_ids" in line):
        raise ValueError("either prompt or prompt_ids is needed")
    ids = line.get("prompt_ids")
    return WorkRequest(
        prompt=str(line["prompt"]) if ids is None else tuple(int(token) for token in ids),
        max_tokens=int(line["max_tokens"]),
        ignore_eos=bool(line.get("ignore_eos", True)),
        arrival_s=float(line.get("arrival_s", 0.0)),
    )


def _tokens(source: random.Random, spec: WorkloadSpec, length: int) -> list[Any]:
    if spec.text:
        return [source.choice(WORDS) for _ in range(length)]
    return [source.randrange(MIN_RANDOM_ID, spec.vocabulary) for _ in range(length)]


def _joined(spec: WorkloadSpec, tokens: list[Any]) -> str | tuple[int, ...]:
    return " ".join(tokens) if spec.text else tuple(tokens)


def _gap_s(source: random.Random, rate: float, burstiness: float) -> float:
    """Gamma gaps with mean 1 / rate: exponential, that is Poisson arrivals, at burstiness 1."""
    return source.gammavariate(burstiness, 1 / (rate * burstiness))
