"""What became of each request over time, from the records of the steps it was in. Pure arithmetic.

A request waits until its first step, has prompt chunks and decode steps, may be passed over meanwhile, and,
in a batch that nobody joins, holds its place from its last step to the batch's end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tokentide.bench.operations_watch import StepSpan


class Kind(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    PASSED_OVER = "passed over"  # its worker ran steps without it
    HELD = "held"  # it has ended; its place is empty until its batch has


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """[start_s, end_s)"""

    kind: Kind
    start_s: float
    end_s: float


def request_segments(
    request_id: str, due_s: float, spans: Sequence[StepSpan], *, holds_place: bool
) -> list[Segment]:
    """Without gaps from `due_s` on; empty if the request was in no step. `spans` in order of time."""
    workers = [span.step.worker for span in spans if request_id in _ids(span)]
    if not workers:
        return []
    # After a move to another worker its life goes on there; the last one is told.
    worker = workers[-1]
    own = _without_overlap([span for span in spans if span.step.worker == worker])
    places = [place for place, span in enumerate(own) if request_id in _ids(span)]
    segments = [Segment(kind=Kind.WAITING, start_s=due_s, end_s=own[places[0]].began_s)]
    for place in places:
        kind = Kind.DECODE if _is_decode(own[place], request_id) else Kind.PREFILL
        _extend(segments, kind, own, place)
    if holds_place:
        end_s = own[_last_of_batch(places[0], own)].ended_s
        if end_s > segments[-1].end_s:
            held = Segment(kind=Kind.HELD, start_s=segments[-1].end_s, end_s=end_s)
            segments.append(held)
    return segments


def _extend(segments: list[Segment], kind: Kind, own: Sequence[StepSpan], place: int) -> None:
    """The pause before a step that follows directly is the step's."""
    last, span = segments[-1], own[place]
    if last.kind is not Kind.WAITING:
        if own[place - 1].ended_s > last.end_s:
            passed = Segment(kind=Kind.PASSED_OVER, start_s=last.end_s, end_s=span.began_s)
            segments.append(passed)
            last = passed
        if last.kind is kind:
            segments[-1] = Segment(kind=kind, start_s=last.start_s, end_s=span.ended_s)
            return
    segments.append(Segment(kind=kind, start_s=last.end_s, end_s=span.ended_s))


def _last_of_batch(first: int, own: Sequence[StepSpan]) -> int:
    """Place of the last step of the batch that a request joined at `first`.

    Nobody joins a batch: so its members are those who have a step between its first and its last, and the
    next batch begins with a step in which none of them is.
    """
    last_places: dict[str, int] = {}
    for place, span in enumerate(own):
        for request_id in _ids(span):
            last_places[request_id] = place
    place, last = first, first
    while place <= last:
        last = max(last, *(last_places[request_id] for request_id in _ids(own[place])))
        place += 1
    return last


def _without_overlap(spans: Sequence[StepSpan]) -> list[StepSpan]:
    """A worker runs one step at a time; records that come late only look otherwise."""
    apart: list[StepSpan] = []
    for span in spans:
        if not span.step.scheduled:
            continue  # it only released
        began_s = max(span.began_s, apart[-1].ended_s) if apart else span.began_s
        ended_s = max(span.ended_s, began_s)
        apart.append(StepSpan(began_s=began_s, ended_s=ended_s, step=span.step))
    return apart


def _ids(span: StepSpan) -> set[str]:
    return {scheduled.request_id for scheduled in span.step.scheduled}


def _is_decode(span: StepSpan, request_id: str) -> bool:
    return any(s.is_decode for s in span.step.scheduled if s.request_id == request_id)
