"""Fitting a cost model to steps that were measured.

Least absolute relative errors (a short step counts as much as a long one, and steps that something
else disturbed move nothing), no cost below 0. For each candidate of `free_tokens` the model is
linear; the best candidate wins. Knows nothing of where the steps came from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from shared.cost_model import CostModel, StepShape

Sample = tuple[StepShape, int]  # and its measured time in nanoseconds

MIN_SAMPLES = 8
FREE_TOKENS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
ONLINE_FREE_TOKENS = (0, 1, 4, 8, 16, 32, 64, 128, 256)
OUTLIER_DEVIATIONS = 6.0  # of the median absolute residual
LEAST_RESIDUAL = 0.02  # as a share of the step's time: below, steps are told well enough
MAX_SAMPLES = 3000  # more are thinned out: the fit must take seconds
NUM_ROUNDS = 6
REFINEMENTS = 4  # parts of the distance to the next candidate
_COSTS = (
    "base_ns",
    "per_token_ns",
    "per_sequence_ns",
    "per_sample_ns",
    "per_context_ns",
    "per_attended_ns",
)
_SIZE = len(_COSTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """How well a model tells measured steps, as shares of the measured time."""

    num_samples: int
    num_outliers: int  # far off the model: the fit hardly heeds them, the errors here do
    median_error: float
    p95_error: float

    @classmethod
    def of(cls, model: CostModel, samples: Sequence[Sample]) -> Self:
        errors = sorted(abs(residual(model, sample)) for sample in samples)
        last = len(errors) - 1
        median_error = errors[round(last * 0.5)]
        bound = max(LEAST_RESIDUAL, OUTLIER_DEVIATIONS * median_error)
        return cls(
            num_samples=len(errors),
            num_outliers=sum(error > bound for error in errors),
            median_error=median_error,
            p95_error=errors[round(last * 0.95)],
        )


def residual(model: CostModel, sample: Sample) -> float:
    """(measured - predicted) / measured."""
    shape, measured_ns = sample
    return 1 - model.predict_ns(shape) / measured_ns


def fit(samples: Sequence[Sample]) -> tuple[CostModel, FitReport]:
    """Raises ValueError when there are too few."""
    usable = [sample for sample in samples if sample[0].num_tokens and sample[1] > 0]
    if len(usable) < MIN_SAMPLES:
        raise ValueError(f"{len(usable)} steps are too few to fit: {MIN_SAMPLES} are needed")
    used = usable[:: -(-len(usable) // MAX_SAMPLES)]
    model = _best_fit([(sample, 1 / sample[1] ** 2) for sample in used])
    for _ in range(NUM_ROUNDS):
        model = _best_fit([(sample, _weight(model, sample)) for sample in used])
    return model, FitReport.of(model, usable)


def _weight(model: CostModel, sample: Sample) -> float:
    """Turns squares into absolute values: the fit goes through the middle of the steps of a kind,
    wherever the disturbed ones lie. Relative to what is predicted, or short ones would win."""
    shape, measured_ns = sample
    predicted_ns = max(1, model.predict_ns(shape))
    return 1 / (predicted_ns**2 * max(LEAST_RESIDUAL, abs(measured_ns / predicted_ns - 1)))


def _best_fit(weighted: Sequence[tuple[Sample, float]]) -> CostModel:
    """Over the candidates of `free_tokens` that the samples can tell apart, then closer around the
    best of them."""
    sizes = [shape.num_tokens for (shape, _), _ in weighted]
    candidates = [float(f) for f in FREE_TOKENS if not f or min(sizes) <= f < max(sizes)]
    best = _best_of(candidates, weighted)
    place = candidates.index(best.free_tokens)
    around = candidates[max(0, place - 1) : place + 2]
    closer = [
        low + (high - low) * part / REFINEMENTS
        for low, high in pairwise(around)
        for part in range(1, REFINEMENTS)
    ]
    return _best_of([best.free_tokens, *closer], weighted).model()


def _best_of(candidates: Sequence[float], weighted: Sequence[tuple[Sample, float]]) -> "_Gram":
    grams = [_Gram(free) for free in candidates]
    for gram in grams:
        for sample, weight in weighted:
            gram.add(sample, weight)
    return min(grams, key=_Gram.least_error)


class OnlineFit:
    """A model of a worker's steps that follows them; older steps count ever less.

    Keeps sums only: memory and the time of `add` do not grow.
    """

    def __init__(self, *, memory_steps: int = 2000, refit_steps: int = 64) -> None:
        """`memory_steps`: after so many a step counts about a third."""
        self._keep = 1 - 1 / memory_steps
        self._refit_steps = refit_steps
        self._grams = [_Gram(free) for free in ONLINE_FREE_TOKENS]
        self._num_steps = 0
        self._typical_error = 0.0
        self.model: CostModel | None = None  # None: too few steps so far

    def add(self, shape: StepShape, measured_ns: int) -> None:
        if not shape.num_tokens or measured_ns <= 0 or self._is_disturbed((shape, measured_ns)):
            return
        self._num_steps += 1
        sample = (shape, measured_ns)
        weight = 1 / measured_ns**2 if self.model is None else _weight(self.model, sample)
        for gram in self._grams:
            gram.decay(self._keep)
            gram.add(sample, weight)
        is_due = self._num_steps % self._refit_steps == 0
        if is_due or (self.model is None and self._num_steps == 2 * MIN_SAMPLES):
            self.model = min(self._grams, key=_Gram.least_error).model()

    def _is_disturbed(self, sample: Sample) -> bool:
        """Far off the model. What is far off again and again is no disturbance: the bound widens."""
        if self.model is None:
            return False
        error = abs(residual(self.model, sample))
        is_disturbed = error > max(0.1, OUTLIER_DEVIATIONS * self._typical_error)
        self._typical_error += (min(error, 1.0) - self._typical_error) / 32
        return is_disturbed


class _Gram:
    """The normal equations of weighted least squares, for one candidate of `free_tokens`."""

    def __init__(self, free_tokens: float) -> None:
        self.free_tokens = free_tokens
        self._products = [[0.0] * _SIZE for _ in range(_SIZE)]
        self._targets = [0.0] * _SIZE
        self._squares = 0.0

    def add(self, sample: Sample, weight: float) -> None:
        shape, measured_ns = sample
        row = self._features(shape)
        for products, feature in zip(self._products, row, strict=True):
            if feature:
                weighted = weight * feature
                for column, other in enumerate(row):
                    products[column] += weighted * other
        weighted = weight * measured_ns
        for column, feature in enumerate(row):
            self._targets[column] += weighted * feature
        self._squares += weighted * measured_ns

    def decay(self, keep: float) -> None:
        self._products = [[value * keep for value in row] for row in self._products]
        self._targets = [value * keep for value in self._targets]
        self._squares *= keep

    def least_error(self) -> float:
        """The weighted sum of squared errors at the best costs."""
        costs = self._costs()
        explained = sum(c * t for c, t in zip(costs, self._targets, strict=True))
        return self._squares - explained

    def model(self) -> CostModel:
        costs = dict(zip(_COSTS, self._costs(), strict=True))
        return CostModel(free_tokens=self.free_tokens, **costs)

    def _features(self, shape: StepShape) -> tuple[float, ...]:
        return (
            1.0,
            max(0, shape.num_tokens - self.free_tokens),
            shape.num_sequences,
            shape.num_samples,
            shape.num_context_tokens,
            shape.num_attended,
        )

    def _costs(self) -> list[float]:
        return non_negative_least_squares(self._products, self._targets)


def non_negative_least_squares(
    products: Sequence[Sequence[float]], targets: Sequence[float]
) -> list[float]:
    """The x >= 0 with least |Ax - b|, given A'A and A'b (Lawson and Hanson's active sets)."""
    size = len(targets)
    scale = [max(products[i][i], 0.0) ** 0.5 or 1.0 for i in range(size)]
    gram = [[products[i][j] / (scale[i] * scale[j]) for j in range(size)] for i in range(size)]
    goal = [targets[i] / scale[i] for i in range(size)]
    for i in range(size):
        gram[i][i] += 1e-10  # columns that are all 0, or the same
    solution = [0.0] * size
    active: list[int] = []
    for _ in range(3 * size):
        slope = [goal[i] - sum(map(_times, gram[i], solution)) for i in range(size)]
        entering = max(
            (i for i in range(size) if i not in active), key=slope.__getitem__, default=0
        )
        if entering in active or slope[entering] <= 1e-9 * max(map(abs, goal)):
            break
        active.append(entering)
        solution = _inside(gram, goal, solution, active)
    return [value / scale[i] for i, value in enumerate(solution)]


def _inside(
    gram: list[list[float]], goal: list[float], solution: list[float], active: list[int]
) -> list[float]:
    """From `solution` towards the best point of the active set, dropping what would turn negative."""
    while active:
        best = _solve([[gram[i][j] for j in active] for i in active], [goal[i] for i in active])
        if min(best) > 0:
            solution = [0.0] * len(goal)
            for i, value in zip(active, best, strict=True):
                solution[i] = value
            return solution
        step = min(
            solution[i] / (solution[i] - value)
            for i, value in zip(active, best, strict=True)
            if value <= 0
        )
        moved = list(solution)
        for i, value in zip(active, best, strict=True):
            moved[i] += step * (value - solution[i])
        negative = [i for i, value in zip(active, best, strict=True) if value <= 0]
        gone = min(negative, key=moved.__getitem__)
        moved[gone] = 0.0
        active.remove(gone)
        solution = moved
    return solution


def _solve(matrix: list[list[float]], target: list[float]) -> list[float]:
    """Of a symmetric positive definite system, by Cholesky's decomposition."""
    size = len(target)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(map(_times, lower[i][:j], lower[j][:j]))
            lower[i][j] = max(rest, 1e-14) ** 0.5 if i == j else rest / lower[j][j]
    forward = [0.0] * size
    for i in range(size):
        forward[i] = (target[i] - sum(map(_times, lower[i][:i], forward[:i]))) / lower[i][i]
    backward = [0.0] * size
    for i in reversed(range(size)):
        known = sum(lower[j][i] * backward[j] for j in range(i + 1, size))
        backward[i] = (forward[i] - known) / lower[i][i]
    return backward


def _times(left: float, right: float) -> float:
    return left * right
