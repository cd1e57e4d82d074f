"""What a load was made of, for its report."""

from collections.abc import Sequence
from typing import Any

from tokentide.bench.workload import WorkloadSpec, WorkRequest


def load_facts(spec: WorkloadSpec, requests: Sequence[WorkRequest]) -> dict[str, Any]:
    """`requests`: of a file; none where they were drawn."""
    if requests:
        return {"file": True}
    return {
        "prompt_lengths": spec.prompt_lengths.spec,
        "output_lengths": spec.output_lengths.spec,
        "shared_prefix": spec.shared_prefix,
        "text": spec.text,
        "ignore_eos": spec.ignore_eos,
        "rate": spec.rate,
        "burstiness": spec.burstiness,
        "seed": spec.seed,
    }
