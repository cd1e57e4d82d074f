"""The pool's strategy as this replica knows it: what the store says, or else its own setting."""

import logging
from dataclasses import dataclass

from scheduler_service.membership import Membership
from scheduler_service.store.interface import RequestStore
from shared.errors import FieldViolation, InvalidRequest
from shared.strategy import StrategySettings

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class PoolStrategy:
    store: RequestStore
    membership: Membership
    own: StrategySettings  # of this replica, where the pool has none
    claim_window: int
    max_sequences: int  # of this replica's own limits
    _text: str = ""
    _known: StrategySettings | None = None

    def now(self) -> StrategySettings:
        """The same value until it changes."""
        text = self.membership.pool.strategy
        if text != self._text:
            self._text, self._known = text, self._parse(text)
        return self._known or self.own

    @property
    def is_pools(self) -> bool:
        return self.now() is not self.own

    def _parse(self, text: str) -> StrategySettings | None:
        try:
            return StrategySettings.from_json(text) if text else None
        except InvalidRequest as error:  # a newer replica's: ours goes on as it did
            logger.error("the pool's strategy is not one that is known here: %s", error)
            return self._known

    async def set(self, settings: StrategySettings | None) -> StrategySettings:
        """For the whole pool; None: back to the replicas' own settings. Returns what holds.

        Raises InvalidRequest, StoreUnavailable."""
        if settings is not None:
            settings.check()
            self._check_here(settings)
        text = settings.as_json() if settings is not None else ""
        await self.store.set_strategy(text)
        self.membership.learn_strategy(text)
        return self.now()

    def _check_here(self, settings: StrategySettings) -> None:
        size = settings.largest_batch
        max_sequences = settings.max_sequences or self.max_sequences
        if size > self.claim_window:
            problem = (
                f"a batch of {size} is more than a driver sees (claim_window {self.claim_window})"
            )
            raise InvalidRequest(FieldViolation("strategy", problem))
        if size > max_sequences:
            problem = f"a batch of {size} is more than may run (max_sequences {max_sequences})"
            raise InvalidRequest(FieldViolation("strategy", problem))
        if settings.preserve_ordering and len(self.membership.workers) > 1:
            problem = "answers of several workers have no common order"
            raise InvalidRequest(FieldViolation("preserve_ordering", problem))
