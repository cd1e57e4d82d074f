"""Judges a simulated history: what was executed, committed and delivered, against the invariants.

Collects violations instead of raising, so that a run shows all of them.
"""

from collections import defaultdict
from typing import Any

from fake_worker import sampled_id
from witness import StoreWitness

from scheduler_service.planning.request import TERMINAL
from scheduler_service.request_spec import RequestSpec
from scheduler_service.store.values import LogSlice
from shared.errors import DataLoss, RequestFailed
from shared.types import BatchPlan, FinishReason, RefusalReason, StepResult
from tokentide.resume import Chunk

# Results that await their commit and plans in flight meanwhile: of a driver and of the one before.
MOST_UNCOMMITTED = 2 * (8 + 2)


class Auditor:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.witness = StoreWitness(self._violate)
        self.num_delivered = 0
        self._accepted: dict[str, RequestSpec] = {}
        self._delivered: dict[str, list[int]] = defaultdict(list)
        self._texts: dict[str, str] = defaultdict(str)
        self._ends: dict[str, Any] = {}
        self._heard: set[str] = set()
        self._steps: set[tuple[str, int, int]] = set()
        self.cancelled: set[str] = set()
        self.store_loses_writes = False
        self.unfit: set[str] = set()  # requests that no worker can run any more
        self.quarantined: set[str] = set()  # requests that kill their workers
        self.failed: set[str] = set()  # requests that a worker could not compute
        self.has_token_budget = True  # not where whole prompts are prefilled at once
        self.is_divergent = False  # each worker draws tokens of its own
        self._stored: dict[str, LogSlice | None] = {}  # what the store has of each at the end

    def _violate(self, invariant: str, what: str) -> None:
        self.violations.append(f"{invariant}: {what}")

    # -- while it runs -----------------------------------------------------------------------------

    def on_step(self, incarnation: str, plan: BatchPlan, granted_epoch: int, limits: Any) -> None:
        key = (incarnation, plan.epoch, plan.step_id)
        if plan.epoch != granted_epoch:
            self._violate("I10", f"step {key} executed, though epoch {granted_epoch} is granted")
        num_tokens = sum(chunk.max_num_tokens for chunk in plan.chunks)
        is_too_much = num_tokens > limits.token_budget and self.has_token_budget
        if is_too_much or len(plan.chunks) > limits.max_sequences:
            self._violate("I6", f"step {key}: {num_tokens} tokens, {len(plan.chunks)} sequences")
        if key in self._steps:
            self._violate("I10", f"step {key} executed twice")
        self._steps.add(key)

    def on_result(self, incarnation: str, result: StepResult) -> None:
        blocks = result.blocks
        if blocks.free + blocks.cached + blocks.held != blocks.total:
            self._violate("I8", f"{incarnation} step {result.step_id}: {blocks}")
        unknown = any(r.reason is RefusalReason.UNKNOWN_HANDLE for r in result.refusals)
        if unknown and not self.failed:
            self._violate("I6", f"{incarnation} step {result.step_id}: {result.refusals}")

    def on_outbox(self, incarnation: str, num_results: int) -> None:
        if num_results > MOST_UNCOMMITTED:
            self._violate("I11", f"{incarnation}: {num_results} results wait for their commit")

    def on_accepted(self, request_id: str, spec: RequestSpec) -> None:
        if self.store_loses_writes and not self._delivered[request_id]:
            self._accepted[request_id] = (
                spec  # what was decided before may be lost, and nobody knows
            )
        known = self._accepted.setdefault(request_id, spec)
        if known != spec:
            self._violate("I5", f"{request_id}: a retry decided the request anew")

    def has_heard(self, request_id: str) -> bool:
        """Whether its client has been told that it is accepted."""
        return request_id in self._heard

    def on_delivered(self, request_id: str, chunk: Chunk) -> None:
        self._heard.add(request_id)
        delivered = self._delivered[request_id]
        if chunk.token_ids and chunk.start_index != len(delivered):
            self._violate("I5", f"{request_id}: {chunk.start_index} after {len(delivered)}")
        delivered.extend(chunk.token_ids)
        self.num_delivered += len(chunk.token_ids)
        self._texts[request_id] += chunk.text
        if self.store_loses_writes or not delivered:
            return  # what was delivered may not be in the log again yet
        log = self.witness.requests[request_id].log
        if delivered != log[: len(delivered)]:
            self._violate("I4", f"{request_id}: delivered what is not in the log")

    def on_client_end(self, request_id: str, finish: FinishReason | str) -> None:
        if request_id in self._ends:
            self._violate("I9", f"{request_id} ended twice")
        self._ends[request_id] = finish

    # -- afterwards --------------------------------------------------------------------------------

    async def read_ends(self, store: Any) -> bool:
        """Whether all have ended."""
        names = list(self._accepted)
        self._stored = dict(zip(names, await store.read_logs([(n, 0) for n in names]), strict=True))
        return all(s is None or s.status in TERMINAL for s in self._stored.values())

    def judge(self) -> list[str]:
        """After `read_ends`."""
        for request_id, spec in self._accepted.items():
            stored = self._stored[request_id]
            if self.store_loses_writes and self._ends.get(request_id) == FinishReason.LENGTH:
                self._judge_output(request_id, spec, "finished")  # its record may be lost
                continue
            if self.store_loses_writes and self._ends.get(request_id) == DataLoss.__name__:
                if not self.is_divergent:
                    self._violate("I5", f"{request_id}: data loss, though no token could differ")
                continue
            is_excused = request_id in self.cancelled | self.failed
            if stored is None and self.store_loses_writes and is_excused:
                continue
            if stored is None or stored.status not in TERMINAL:
                self._violate("I9", f"{request_id} is {stored and stored.status} at the end")
            elif request_id not in self.cancelled:
                self._judge_output(request_id, spec, stored.status)
        return self.violations

    def _expected(self, request_id: str, spec: RequestSpec) -> list[int]:
        if not self.is_divergent:
            return [sampled_id(spec.sampling.seed, n) for n in range(spec.stop.max_tokens)]
        complete = self.witness.complete.get(request_id, [])
        delivered = self._delivered[request_id]
        return delivered if delivered in complete else next(iter(complete), [])

    def _judge_output(self, request_id: str, spec: RequestSpec, status: str) -> None:
        if self.store_loses_writes and self._ends.get(request_id) == RequestFailed.__name__:
            return  # it had failed, and the store has lost that
        expected = self._expected(request_id, spec)
        delivered = self._delivered[request_id]
        # A failure may die with its driver before it is written: then the request has run elsewhere.
        has_failed = request_id in self.failed and status != "finished"
        if request_id in self.unfit | self.quarantined or has_failed:
            expected = expected[: len(delivered)]
            end = ("failed", "RequestUnfit")
            if request_id in self.quarantined:
                end = ("quarantined", "RequestQuarantined")
            elif request_id in self.failed:
                end = ("failed", "RequestFailed")
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
