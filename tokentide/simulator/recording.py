"""A scheduler's step file read back: the workload that it served, and samples for a cost model.

The contents of prompts are not in it: each gets ids of its own, so beginnings that were shared are
not. Times are in seconds.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.cost_fit import Sample
from shared.types import BlockCounts, StepTimings
from tokentide.bench.workload import DEFAULT_VOCABULARY, MIN_RANDOM_ID, WorkRequest
from tokentide.commands.readings import Scheduled, Step
from tokentide.simulator.step_follower import StepFollower


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAdmission:
    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int  # in its log already
    max_tokens: int
    age_ms: int  # since it was submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    ended_s: float  # seconds since 1970
    step: Step
    admitted: tuple[RecordedAdmission, ...]
    num_output_tokens: dict[str, int]  # of the requests that ended in it

    @property
    def began_s(self) -> float:
        return self.ended_s - self.step.timings.total_ns / 1e9


def read_steps(path: Path) -> list[RecordedStep]:
    """Raises ValueError with the line that is wrong. A last line that was cut short is left out."""
    steps = []
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            steps.append(_step(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: no step: {error}") from error
    if not steps:
        raise ValueError(f"{path}: no steps")
    return steps


def workload_of(steps: list[RecordedStep]) -> list[WorkRequest]:
    """Each request as it arrived, with the output that it had; one that had not ended, with all that
    it might have had. The first arrives at 0."""
    ended = {name: number for step in steps for name, number in step.num_output_tokens.items()}
    arrivals: dict[str, tuple[float, RecordedAdmission]] = {}
    for recorded in steps:
        for admission in recorded.admitted:
            arrival_s = recorded.began_s - admission.age_ms / 1e3
            arrivals.setdefault(admission.request_id, (arrival_s, admission))
    if not arrivals:
        raise ValueError("nobody was admitted in these steps")
    first_s = min(arrival_s for arrival_s, _ in arrivals.values())
    requests = [
        WorkRequest(
            prompt=_ids(request_id, admission.num_prompt_tokens),
            max_tokens=max(1, ended.get(request_id, admission.max_tokens)),
            arrival_s=arrival_s - first_s,
        )
        for request_id, (arrival_s, admission) in arrivals.items()
    ]
    return sorted(requests, key=lambda request: request.arrival_s)


def samples_of(steps: list[RecordedStep]) -> list[Sample]:
    """Shapes and times of the steps that can be followed from their beginning."""
    follower = StepFollower()
    samples: list[Sample] = []
    for recorded in steps:
        for admission in recorded.admitted:
            if not admission.num_output_tokens:
                name = admission.request_id
                follower.expect(name, admission.num_prompt_tokens, admission.max_tokens)
        shape = follower.shape(recorded.step)
        if shape is not None and shape.num_tokens:
            samples.append((shape, recorded.step.timings.total_ns))
        for request_id in recorded.num_output_tokens:
            follower.forget(request_id)
    return samples


def _step(line: dict[str, Any]) -> RecordedStep:
    blocks = line["blocks"] or {"total": 0, "free": 0, "cached": 0, "held": 0}
    return RecordedStep(
        ended_s=float(line["at_s"]),
        step=Step(
            worker=line["worker"],
            step_id=line["step_id"],
            scheduled=tuple(Scheduled(**chunk) for chunk in line["scheduled"]),
            blocks=BlockCounts(**blocks),
            num_waiting=line["num_waiting"],
            num_running=line["num_running"],
            timings=StepTimings(**line["timings"]),
            num_sampled=line["num_sampled"],
            preempted=tuple(line["preempted"]),
        ),
        admitted=tuple(RecordedAdmission(**admission) for admission in line["admitted"]),
        num_output_tokens={end["request_id"]: end["num_output_tokens"] for end in line["ended"]},
    )


def _ids(request_id: str, number: int) -> tuple[int, ...]:
    source = random.Random(request_id)
    return tuple(source.randrange(MIN_RANDOM_ID, DEFAULT_VOCABULARY) for _ in range(number))
