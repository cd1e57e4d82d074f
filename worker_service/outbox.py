"""Results that are not yet durable: answered again when their step id is repeated.

Output ids themselves stay with their sequences until these are released, so the outbox may be bounded.
"""

from collections import OrderedDict

from shared.types import StepResult

MAX_RESULTS = 64


class Outbox:
    def __init__(self) -> None:
        self._results: OrderedDict[int, StepResult] = OrderedDict()

    def put(self, result: StepResult) -> None:
        self._results[result.step_id] = result
        while len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def get(self, step_id: int) -> StepResult | None:
        return self._results.get(step_id)

    def forget_up_to(self, durable_step: int) -> None:
        while self._results and next(iter(self._results)) <= durable_step:
            self._results.popitem(last=False)

    def __len__(self) -> int:
        return len(self._results)
