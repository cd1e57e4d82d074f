"""Judges a simulated history: what was executed, committed and delivered, against the invariants.

Collects violations instead of raising, so that a run shows all of them.
"""

from collections import defaultdict
from typing import Any

from fake_worker import sampled_id

from scheduler_service.planning.request import TERMINAL
from scheduler_service.request_spec import RequestSpec
from shared.types import BatchPlan, FinishReason, StepResult
from tokentide.resume import Chunk


class Auditor:
    def __init__(self) -> None:
        self.store: Any = None  # the store model
        self.violations: list[str] = []
        self.num_delivered = 0
        self._accepted: dict[str, RequestSpec] = {}
        self._delivered: dict[str, list[int]] = defaultdict(list)
        self._texts: dict[str, str] = defaultdict(str)
        self._ends: dict[str, Any] = {}
        self._steps: set[tuple[str, int, int]] = set()
        self.cancelled: set[str] = set()
        self.store_loses_writes = False
        self.unfit: set[str] = set()  # requests that no worker can run any more
        self.quarantined: set[str] = set()  # requests that kill their workers

    def _violate(self, invariant: str, what: str) -> None:
        self.violations.append(f"{invariant}: {what}")

    # -- while it runs -----------------------------------------------------------------------------

    def on_step(self, incarnation: str, plan: BatchPlan) -> None:
        key = (incarnation, plan.epoch, plan.step_id)
        if key in self._steps:
            self._violate("I10", f"step {key} executed twice")
        self._steps.add(key)

    def on_result(self, incarnation: str, result: StepResult) -> None:
        blocks = result.blocks
        if blocks.free + blocks.cached + blocks.held != blocks.total:
            self._violate("I8", f"{incarnation} step {result.step_id}: {blocks}")

    def on_accepted(self, request_id: str, spec: RequestSpec) -> None:
        known = self._accepted.setdefault(request_id, spec)
        if known != spec:
            self._violate("I5", f"{request_id}: a retry decided the request anew")

    def on_delivered(self, request_id: str, chunk: Chunk) -> None:
        delivered = self._delivered[request_id]
        if chunk.token_ids and chunk.start_index != len(delivered):
            self._violate("I5", f"{request_id}: {chunk.start_index} after {len(delivered)}")
        delivered.extend(chunk.token_ids)
        self.num_delivered += len(chunk.token_ids)
        self._texts[request_id] += chunk.text
        if self.store_loses_writes:
            return  # what was delivered may not be in the log again yet
        log = self.store.requests[request_id].log
        if delivered != log[: len(delivered)]:
            self._violate("I4", f"{request_id}: delivered what is not in the log")

    def on_client_end(self, request_id: str, finish: FinishReason | str) -> None:
        if request_id in self._ends:
            self._violate("I9", f"{request_id} ended twice")
        self._ends[request_id] = finish

    # -- afterwards --------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        for request_id, spec in self._accepted.items():
            stored = self.store.requests.get(request_id)
            if self.store_loses_writes and self._ends.get(request_id) == FinishReason.LENGTH:
                self._judge_output(request_id, spec, "finished")  # its record may be lost
                continue
            if stored is None or stored.status not in TERMINAL:
                self._violate("I9", f"{request_id} is {stored and stored.status} at the end")
            elif request_id not in self.cancelled:
                self._judge_output(request_id, spec, stored.status)
        return self.violations

    def _judge_output(self, request_id: str, spec: RequestSpec, status: str) -> None:
        expected = [sampled_id(spec.sampling.seed, n) for n in range(spec.stop.max_tokens)]
        delivered = self._delivered[request_id]
        if request_id in self.unfit | self.quarantined:
            expected = expected[: len(delivered)]
            end = ("failed", "RequestUnfit")
            if request_id in self.quarantined:
                end = ("quarantined", "RequestQuarantined")
            if (status, self._ends.get(request_id)) != end:
                self._violate("I9", f"{request_id}: stored {status}, should be {end[0]}")
        elif status != "finished" or self._ends.get(request_id) != FinishReason.LENGTH:
            end = self._ends.get(request_id)
            self._violate("I9", f"{request_id}: stored {status}, client saw {end}")
        if delivered != expected:
            self._violate(
                "I5", f"{request_id}: {len(delivered)} tokens of {len(expected)}, or others"
            )
        if self._texts[request_id] != "".join(f"<{t}>" for t in delivered):
            self._violate("I5", f"{request_id}: the text is not that of the tokens")
