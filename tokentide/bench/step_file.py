"""A scheduler's step file as a workload: what was asked of it, when, and how long the answers were.

The contents of prompts are not in the file: each gets ids of its own, so that no beginnings are shared.
Reads the lines' JSON only; knows nothing of the scheduler's code.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.checked_values import mapping, number, text, truth, whole_number
from shared.lengths import MAX_LENGTH
from tokentide.bench.workload import DEFAULT_VOCABULARY, MAX_ARRIVAL_S, MIN_RANDOM_ID, WorkRequest

OLDER = ".1"  # what was written before is in a file of this suffix
# Not seen for longer: cancelled, or its client went. A prompt may sit out a step of its worker.
NUM_STEPS_RUNNING = 4
_MAX_NS = MAX_ARRIVAL_S * 1e9


@dataclass(slots=True, kw_only=True)
class _Followed:
    """What the steps so far say of one request."""

    arrival_s: float  # seconds since 1970
    num_prompt_tokens: int
    max_tokens: int
    num_output_tokens: int = 0  # sampled so far
    has_ended: bool = False
    worker: str = ""  # that had it last
    last_step: int = 0  # of that worker, counted here


def read_step_workload(path: Path, vocabulary: int = DEFAULT_VOCABULARY) -> list[WorkRequest]:
    """What is in `<path>.1`, if there is one, then in `path`. Raises ValueError, OSError."""
    older = path.with_name(path.name + OLDER)
    with path.open(encoding="utf-8", errors="replace") as newer_lines:
        try:
            if not older.exists():
                return workload_of_steps(newer_lines, vocabulary)
            with older.open(encoding="utf-8", errors="replace") as older_lines:
                return workload_of_steps(_chained(older_lines, newer_lines), vocabulary)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def workload_of_steps(
    lines: Iterable[str], vocabulary: int = DEFAULT_VOCABULARY
) -> list[WorkRequest]:
    """Each request once, however often it was admitted, with the output that it had; the first arrives
    at 0. One that still ran at the end has all that it might have had; one that left without an end,
    what was sampled for it. Lines that were cut short are left out. Raises ValueError for other files.
    """
    followed: dict[str, _Followed] = {}
    num_steps: Counter[str] = Counter()
    for line_number, line in enumerate(lines, start=1):
        step = _parsed(line)
        if step is None:
            continue
        try:
            _follow(step, followed, num_steps)
        except KeyError as error:
            raise ValueError(f"line {line_number} is no step: it has no {error}") from error
        except ValueError as error:
            raise ValueError(f"line {line_number} is no step: {error}") from error
    if not num_steps:
        raise ValueError("no steps")
    if not followed:
        raise ValueError("nobody was admitted in these steps")
    first_s = min(request.arrival_s for request in followed.values())
    requests = [
        WorkRequest(
            prompt=_ids(request_id, request.num_prompt_tokens, vocabulary),
            max_tokens=max(1, _num_output_tokens(request, num_steps)),
            arrival_s=request.arrival_s - first_s,
        )
        for request_id, request in followed.items()
    ]
    return sorted(requests, key=lambda request: request.arrival_s)


def _chained(*files: Iterable[str]) -> Iterator[str]:
    for file in files:
        yield from file


def _parsed(line: str) -> Any:
    """None: cut short, at the end or where a killed scheduler's successor went on writing."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _follow(step: Any, followed: dict[str, _Followed], num_steps: Counter[str]) -> None:
    """Raises ValueError, KeyError."""
    step = mapping("a step", step)
    worker = text("worker", step["worker"])
    num_steps[worker] += 1
    total_ns = number("total_ns", mapping("timings", step["timings"])["total_ns"], 0, _MAX_NS)
    began_s = number("at_s", step["at_s"], 0, MAX_ARRIVAL_S) - total_ns / 1e9
    for admission in _objects("admitted", step):
        _admit(admission, began_s, followed)
    for chunk in _objects("scheduled", step):
        if request := followed.get(text("request_id", chunk["request_id"])):
            request.worker, request.last_step = worker, num_steps[worker]
            if truth("is_decode", chunk["is_decode"]):
                # The prompt's last step sampled one, too, and no record says which step that was.
                request.num_output_tokens = max(1, request.num_output_tokens) + 1
    for end in _objects("ended", step):
        if request := followed.get(text("request_id", end["request_id"])):
            request.num_output_tokens, request.has_ended = _count("num_output_tokens", end), True


def _admit(admission: Mapping[str, Any], at_s: float, followed: dict[str, _Followed]) -> None:
    request_id = text("request_id", admission["request_id"])
    if request_id not in followed:
        # Below 0 if the store's clock was set back meanwhile.
        age_ms = number("age_ms", admission["age_ms"], -_MAX_NS / 1e6, _MAX_NS / 1e6)
        followed[request_id] = _Followed(
            arrival_s=at_s - age_ms / 1e3,
            num_prompt_tokens=_count("num_prompt_tokens", admission, 1),
            max_tokens=_count("max_tokens", admission, 1),
        )
    # Of one that was preempted the log says exactly how much it has.
    followed[request_id].num_output_tokens = _count("num_output_tokens", admission)


def _objects(name: str, step: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = step[name]
    if not isinstance(found, list):
        raise ValueError(f"{name} must be a list")
    return [mapping(name, item) for item in found]


def _count(name: str, values: Mapping[str, Any], least: int = 0) -> int:
    return whole_number(name, values[name], least, MAX_LENGTH)


def _num_output_tokens(request: _Followed, num_steps: Counter[str]) -> int:
    num_steps_since = num_steps[request.worker] - request.last_step
    if request.has_ended or num_steps_since >= NUM_STEPS_RUNNING:
        return request.num_output_tokens
    return request.max_tokens


def _ids(request_id: str, number: int, vocabulary: int) -> tuple[int, ...]:
    source = random.Random(request_id)
    return tuple(source.randrange(MIN_RANDOM_ID, vocabulary) for _ in range(number))
