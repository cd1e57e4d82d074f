"""Simulated engines and admissions for tests, with defaults for all that a test does not care about."""

from shared.cost_model import CostModel
from shared.lengths import Lengths
from shared.types import Admission, Assignment, SamplingParams, StopRules
from worker_service.engine.facts import ModelFacts
from worker_service.simulated.engine import SimulatedEngine
from worker_service.simulated.tokens import SimulatedText

STOP_ID = 7


def make_engine(*, num_blocks: int = 64, lengths: str = "", **costs: float) -> SimulatedEngine:
    facts = ModelFacts(
        model_name="simulated",
        fingerprint="00" * 32,
        dtype="float16",
        device="none",
        block_size=16,
        num_blocks=num_blocks,
        max_model_tokens=4096,
        logits_width=100,
        eos_token_ids=(STOP_ID,),
        max_step_tokens=0,
        max_sequences=64,
    )
    text = SimulatedText(vocabulary=100, lengths=Lengths.parse(lengths) if lengths else None)
    return SimulatedEngine(facts, CostModel(**{"base_ns": 1000, **costs}), text)


def make_admission(handle: int = 1, prompt: tuple[int, ...] = (20,) * 40, **fields) -> Admission:
    seed = fields.pop("seed", 5)
    stop = StopRules(**{"max_tokens": 20, "stop_token_ids": (STOP_ID,), **fields})
    return Admission(
        request_id=f"r{handle}",
        assignment=Assignment(1, 1),
        handle=handle,
        token_ids=prompt,
        num_prompt_tokens=len(prompt),
        sampling=SamplingParams(seed=seed),
        stop=stop,
    )
