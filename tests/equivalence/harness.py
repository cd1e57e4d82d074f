"""A small planner of its own that drives an engine through mixed steps, for the equivalence tests.

Requests arrive staggered, so that chunks of some share steps with decodes of others. What a full
pool refuses is released and admitted anew, prompt and log, once somebody has left.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from itertools import count

from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    Chunk,
    RefusalReason,
    Release,
    ReleaseReason,
    SamplingParams,
    StopRules,
)
from worker_service.engine.engine import Engine

GREEDY = SamplingParams(temperature=0.0)
WHOLE = 1 << 20


@dataclass
class Trace:
    """What happened while a batch ran."""

    outputs: list[list[int]]
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_mixed_steps: int = 0  # steps with a decode and a longer chunk


@dataclass
class _Live:
    index: int
    output: list[int] = field(default_factory=list)
    is_done: bool = False


def run_batch(
    engine: Engine,
    prompts: Many[Many[int]],
    num_new_tokens: int,
    chunk_size: int,
    stagger_steps: int = 2,
    sampling: SamplingParams = GREEDY,
) -> Trace:
    """Outputs of all prompts, `num_new_tokens` each. Checks the engine's invariants each step.

    A prompt is admitted every `stagger_steps` steps; 0 = all at once.
    """
    trace = Trace(outputs=[[] for _ in prompts])
    handles, waiting, live = count(1), list(range(len(prompts))), dict[int, _Live]()
    releases: list[Release] = []
    for step_id in range(1, 10_000):
        admissions = []
        if stagger_steps < 2 or step_id % stagger_steps == 1 or not live:
            num_admitted = 1 if stagger_steps else len(waiting)
            admitted, waiting = waiting[:num_admitted], waiting[num_admitted:]
            for index in admitted:
                handle = next(handles)
                live[handle] = _Live(index)
                admissions.append(
                    Admission(
                        request_id=f"request-{index}",
                        assignment=Assignment(handle, 0),
                        handle=handle,
                        token_ids=(*prompts[index], *trace.outputs[index]),
                        num_prompt_tokens=len(prompts[index]),
                        sampling=sampling,
                        stop=StopRules(max_tokens=num_new_tokens),
                    )
                )
        plan = BatchPlan(
            epoch=1,
            step_id=step_id,
            releases=tuple(releases),
            admissions=tuple(admissions),
            chunks=tuple(Chunk(handle, chunk_size) for handle in live),
        )
        result = engine.execute(plan)
        engine.check_invariants()
        assert result.rows or result.refusals, "nothing moved"
        releases = []
        sizes = {row.num_computed_tokens for row in result.rows}
        trace.num_mixed_steps += 1 in sizes and max(sizes) > 1
        for row in result.rows:
            output = trace.outputs[live[row.handle].index]
            assert row.first_index == len(output)
            output += row.sampled_ids
            trace.num_cached_tokens += row.num_cached_tokens
            if row.finish:
                releases.append(Release(handle=row.handle, reason=ReleaseReason.FINISHED))
                del live[row.handle]
        for refusal in result.refusals:
            assert refusal.reason is RefusalReason.NO_FREE_BLOCK, refusal
            index = live.pop(refusal.handle).index
            waiting.insert(0, index)
            trace.num_preemptions += 1
            releases.append(Release(handle=refusal.handle, reason=ReleaseReason.PREEMPTED))
        if not live and not waiting:
            break
    engine.execute(BatchPlan(epoch=1, step_id=step_id + 1, releases=tuple(releases)))
    engine.check_invariants()
    assert engine.blocks().held == 0
    return trace
