"""The settings that are worth trying: a coarse grid, and the neighbours of any of them. Pure.

Answers of batches are streamed in all of them: holding them until the batch ends costs time and gains
nothing. Token budget, chunk size and places are always said, so that no replica's own flags count.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from shared.errors import InvalidRequest
from shared.strategy import MAX_BATCH_SIZE, WHOLE_PREFILL, StrategySettings
from tokentide.bench.strategies import DYNAMIC_DELAY_MS, STATIC_WAIT_MS

BUDGETS = (128, 512, 2048)
DEFAULT_BUDGET = 512
MIN_PLACES = 4  # of the grid; neighbours may have fewer
MAX_SIZES = 6  # of the grid
BUDGET_GRAIN = 16  # tokens: budgets and chunks are multiples of it, at least one
MAX_DELAY_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Beyond them settings are refused, or change nothing."""

    max_places: int  # sequences that can ever run at once on one worker
    max_batch: int  # members that a batch may have
    max_budget: int  # tokens in a step
    own_places: int  # the replicas' own max_sequences: a larger batch must say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    bounds: Bounds

    def coarse(self) -> list[StrategySettings]:
        """In an order whose beginning covers the range: strategies in turn, sizes shuffled."""
        source = random.Random(0)
        families = [self._continuous(), self._static(), self._dynamic()]
        for family in families:
            source.shuffle(family)
        return [s for turn in zip_longest(*families) for s in turn if s is not None]

    def neighbours(self, settings: StrategySettings, factor: float) -> list[StrategySettings]:
        """Each differs in one thing; sizes are `factor` times as large or small."""
        changes = [*self._sizes(settings, factor), *_prefills(settings), *_delays(settings, factor)]
        if settings.name == "continuous":
            other = {"optimistic": "guaranteed", "guaranteed": "optimistic"}
            changes.append({"admission": other[settings.admission]})
        found = (self._changed(settings, change) for change in changes)
        return [changed for changed in found if changed is not None and changed != settings]

    # -- the grid ----------------------------------------------------------------------------------

    def _continuous(self) -> list[StrategySettings]:
        places = _halves(self.bounds.max_places)
        budgets = sorted({min(budget, self.bounds.max_budget) for budget in BUDGETS})
        prefills = [(budget, 0) for budget in budgets] + [(self._budget, WHOLE_PREFILL)]
        found = [
            StrategySettings(token_budget=budget, max_sequences=size, chunk_size=chunk)
            for size in places
            for budget, chunk in prefills
        ]
        guaranteed = [
            StrategySettings(
                token_budget=self._budget, max_sequences=size, chunk_size=0, admission="guaranteed"
            )
            for size in places[:2]
        ]
        return found + guaranteed

    def _static(self) -> list[StrategySettings]:
        fields = {"name": "static", "max_wait_ms": STATIC_WAIT_MS}
        return self._batches("batch_size", fields)

    def _dynamic(self) -> list[StrategySettings]:
        fields = {"name": "dynamic", "max_queue_delay_ms": DYNAMIC_DELAY_MS}
        return self._batches("max_batch_size", fields)

    def _batches(self, size_name: str, fields: dict[str, Any]) -> list[StrategySettings]:
        fields |= {"token_budget": self._budget, "chunk_size": 0, "release": "stream"}
        settings = StrategySettings(**fields)
        sized = (
            self._changed(settings, {size_name: size}) for size in _halves(self.bounds.max_batch)
        )
        return [s for s in sized if s is not None]

    @property
    def _budget(self) -> int:
        return min(DEFAULT_BUDGET, self.bounds.max_budget)

    # -- neighbours --------------------------------------------------------------------------------

    def _sizes(self, settings: StrategySettings, factor: float) -> Iterator[dict[str, Any]]:
        bounds = self.bounds
        is_running = settings.name == "continuous"
        places = (
            _SIZES.get(settings.name, "max_sequences"),
            1,
            bounds.max_places if is_running else bounds.max_batch,
        )
        for name, grain, most in (places, ("token_budget", BUDGET_GRAIN, bounds.max_budget)):
            value = getattr(settings, name)
            if value is not None:
                yield from ({name: size} for size in _around(value, factor, grain, most))

    def _changed(
        self, settings: StrategySettings, change: dict[str, Any]
    ) -> StrategySettings | None:
        """With what must change along. None: it cannot be."""
        size = change.get(_SIZES.get(settings.name, ""))
        if size is not None:
            change = change | {"max_sequences": size if size > self.bounds.own_places else None}
        if settings.name == "dynamic" and size is not None:
            change = change | {"preferred_batch_sizes": (size,)}
        changed = replace(settings, **change)
        try:
            changed.check()
        except InvalidRequest:
            return None
        return changed


_SIZES = {"static": "batch_size", "dynamic": "max_batch_size"}


def bounds_of(*, at_once: int, longest_prompt: int, limits: "OwnLimits") -> Bounds:
    """`at_once`: requests that may be there together."""
    places = max(1, min(at_once, limits.worker_sequences))
    needed = max(DEFAULT_BUDGET, BUDGETS[-1], 2 * longest_prompt)
    return Bounds(
        max_places=places,
        max_batch=min(places, limits.claim_window, MAX_BATCH_SIZE),
        max_budget=min(needed, limits.step_tokens or needed),
        own_places=limits.own_sequences,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimits:
    """What the services' own flags allow."""

    worker_sequences: int
    own_sequences: int
    claim_window: int
    step_tokens: int  # 0: any


def _halves(most: int) -> list[int]:
    """Largest first, then the powers of two below it."""
    sizes, size = [most], 1 << max(0, (most - 1).bit_length() - 1)
    while len(sizes) < MAX_SIZES and MIN_PLACES <= size < most:
        sizes.append(size)
        size //= 2
    return sizes


def _around(value: int, factor: float, grain: int, high: int) -> Sequence[int]:
    """Multiples of `grain`, at least one, or `high`."""
    near = {min(high, max(1, round(value * f / grain)) * grain) for f in (factor, 1 / factor)}
    return sorted(near - {value})


def _prefills(settings: StrategySettings) -> Iterator[dict[str, Any]]:
    """Whole prompts, the budget alone, and parts of it."""
    sizes = {WHOLE_PREFILL, 0}
    for part in (2, 4):
        sizes.add((settings.token_budget or 0) // part // BUDGET_GRAIN * BUDGET_GRAIN)
    yield from ({"chunk_size": size} for size in sorted(sizes) if size != settings.chunk_size)


def _delays(settings: StrategySettings, factor: float) -> Iterator[dict[str, Any]]:
    name = {"static": "max_wait_ms", "dynamic": "max_queue_delay_ms"}.get(settings.name)
    value = getattr(settings, name) if name else 0
    if name and value:  # 0 is for ever in one, and not at all in the other: never by the way
        yield from ({name: delay} for delay in _around(value, factor, 1, MAX_DELAY_MS))
