"""What is asked of the service in a benchmark: drawn from a seed, or read from JSON lines.

The same seed and settings give the same requests. Knows nothing of how they are sent.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.checked_values import mapping, number, shown, text, truth, whole_number
from shared.lengths import MAX_LENGTH, Lengths

MIN_RANDOM_ID = 16  # below are special tokens in most vocabularies
DEFAULT_VOCABULARY = 1000  # ids that nearly every vocabulary has
MAX_ID = (1 << 31) - 2  # what the wire carries, but for the end token of simulated models
MAX_ARRIVAL_S = 1e10  # 300 years: the slowest rate's, too
MIN_RATE, MAX_RATE = 1e-6, 1e9  # a second
MIN_BURSTINESS, MAX_BURSTINESS = 1e-3, 1e3
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
        whole_number("shared_prefix", self.shared_prefix, 0, MAX_LENGTH)
        if self.rate is not None:
            number("rate", self.rate, MIN_RATE, MAX_RATE)
        number("burstiness", self.burstiness, MIN_BURSTINESS, MAX_BURSTINESS)


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
    """Raises ValueError with the line that is wrong, OSError."""
    requests = []
    for line_number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            requests.append(_from_json(json.loads(line)))
        except RecursionError:
            raise ValueError(f"{path}:{line_number}: no request: nested too deeply") from None
        except ValueError as error:
            raise ValueError(f"{path}:{line_number}: no request: {error}") from error
    if not requests:
        raise ValueError(f"{path}: no requests")
    return sorted(requests, key=lambda request: request.arrival_s)


def write_workload(path: Path, requests: Iterable[WorkRequest]) -> None:
    path.write_text("".join(f"{json.dumps(request.as_json())}\n" for request in requests))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")  # in JSON, others are no line's end
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no text in UTF-8") from error


_KEYS = frozenset({"prompt", "prompt_ids", "max_tokens", "ignore_eos", "arrival_s"})


def _from_json(line: Any) -> WorkRequest:
    values = mapping("a request", line, _KEYS)
    if ("prompt" in values) == ("prompt_ids" in values):
        raise ValueError("either prompt or prompt_ids is needed")
    if "max_tokens" not in values:
        raise ValueError("max_tokens is needed")
    return WorkRequest(
        prompt=_prompt(values),
        max_tokens=whole_number("max_tokens", values["max_tokens"], 1, MAX_LENGTH),
        ignore_eos=truth("ignore_eos", values.get("ignore_eos", True)),
        arrival_s=float(number("arrival_s", values.get("arrival_s", 0.0), 0, MAX_ARRIVAL_S)),
    )


def _prompt(values: dict[str, Any]) -> str | tuple[int, ...]:
    if "prompt" in values:
        found = text("prompt", values["prompt"])
        if not found.split():
            raise ValueError("prompt has no words")
        return found
    ids = values["prompt_ids"]
    if not isinstance(ids, list) or not ids:
        raise ValueError(f"prompt_ids must be a list of at least one id, got {shown(ids)}")
    return tuple(whole_number(f"prompt_ids[{at}]", ids[at], 0, MAX_ID) for at in range(len(ids)))


def _tokens(source: random.Random, spec: WorkloadSpec, length: int) -> list[Any]:
    if spec.text:
        return [source.choice(WORDS) for _ in range(length)]
    return [source.randrange(MIN_RANDOM_ID, spec.vocabulary) for _ in range(length)]


def _joined(spec: WorkloadSpec, tokens: list[Any]) -> str | tuple[int, ...]:
    return " ".join(tokens) if spec.text else tuple(tokens)


def _gap_s(source: random.Random, rate: float, burstiness: float) -> float:
    """Gamma gaps with mean 1 / rate: exponential, that is Poisson arrivals, at burstiness 1."""
    return source.gammavariate(burstiness, 1 / (rate * burstiness))
