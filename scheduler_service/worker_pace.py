"""How long a worker's steps take, learnt while it is driven. Pure arithmetic over `shared.cost_fit`."""

from collections.abc import Iterable

from shared.cost_fit import OnlineFit
from shared.cost_model import StepShape

LEARN_EVERY = 4  # steps: enough to follow a worker, and a quarter of the cost


class WorkerPace:
    def __init__(self) -> None:
        self._fit = OnlineFit()
        self._num_steps = 0

    def learn(self, work: Iterable[tuple[int, int, bool]], measured_ns: int) -> None:
        self._num_steps += 1
        if self._fit.model is None or self._num_steps % LEARN_EVERY == 0:
            self._fit.add(StepShape.of_chunks(work), measured_ns)

    def predict_ns(self, shape: StepShape) -> int:
        """0: not known yet."""
        return self._fit.model.predict_ns(shape) if self._fit.model is not None else 0
