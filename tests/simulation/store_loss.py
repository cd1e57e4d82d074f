"""What a store loses: its last writes, or all of them."""

import copy
from typing import Any

from store_model import StoreModel

KEPT = (  # what a restored copy of a store has in it
    "requests",
    "workers",
    "replicas",
    "batches",
    "strategy",
    "num_unread_tokens",
    "beats_until_ms",
    "amnesty_until_ms",
    "capacity",
    "fingerprint",
    "num_arrivals",
    "write_counter",
)


def saved(store: StoreModel) -> dict[str, Any]:
    return {name: copy.deepcopy(getattr(store, name)) for name in KEPT}


def restore(store: StoreModel, state: dict[str, Any]) -> None:
    """As after starting from an older append-only file: the same marker, fewer writes."""
    for name, value in state.items():
        setattr(store, name, value)


def empty(store: StoreModel) -> None:
    """As after FLUSHALL: another instance."""
    fresh = StoreModel(now_ms=store.now_ms, draw_nonce=store.draw_nonce, marker="another")
    restore(store, saved(fresh))
    store.marker = "another"
