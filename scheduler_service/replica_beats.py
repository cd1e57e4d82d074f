"""Which replicas live, by their beats in the store as this replica's own clock times them; and who of them should
drive a worker.

Pure bookkeeping over times that are handed in (I12).
"""

import hashlib
from collections.abc import Sequence


def driver_ranking(replica_ids: Sequence[str], incarnation: str) -> list[str]:
    """Rendezvous hashing: replicas by preference for this worker, the preferred first."""

    def weight(replica_id: str) -> bytes:
        return hashlib.sha256(f"{replica_id}\n{incarnation}".encode()).digest()

    return sorted(replica_ids, key=weight, reverse=True)


class ReplicaBeats:
    def __init__(self, own_id: str, silence_s: float) -> None:
        """A replica whose beat stands still for `silence_s` is gone."""
        self._own_id = own_id
        self._silence_s = silence_s
        self._beats: dict[str, tuple[int, float, float]] = {}  # beat, changed at, first seen

    def note(self, beats: dict[str, int], now_s: float) -> None:
        for replica_id, beat in beats.items():
            known = self._beats.get(replica_id)
            if known is None:
                # Seen once is not seen alive: its beat must move first.
                self._beats[replica_id] = (beat, now_s - self._silence_s, now_s)
            elif known[0] != beat:
                was_live = now_s - known[1] < self._silence_s
                self._beats[replica_id] = (beat, now_s, known[2] if was_live else now_s)
        for replica_id in set(self._beats) - set(beats):
            del self._beats[replica_id]

    def doubt(self, replica_id: str, now_s: float) -> None:
        """It has just lost a worker: not alive until its beat moves again."""
        if replica_id in self._beats:
            beat, _, first_s = self._beats[replica_id]
            self._beats[replica_id] = (beat, now_s - self._silence_s, first_s)

    def live(self, now_s: float) -> list[str]:
        live = {r for r, (_, at_s, _) in self._beats.items() if now_s - at_s < self._silence_s}
        return sorted(live | {self._own_id})

    def live_for_s(self, replica_id: str, now_s: float) -> float:
        """How long it has been seen alive without a pause."""
        return now_s - self._beats[replica_id][2]


class PassedOver:
    """Replicas that live, and did not take a worker though it was theirs to take: they may not reach it. Nobody
    yields it to them for a while."""

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s
        self._until_s: dict[tuple[str, str], float] = {}  # (incarnation, replica)

    def note(self, incarnation: str, replica_ids: Sequence[str], now_s: float) -> None:
        self._until_s = {k: v for k, v in self._until_s.items() if v > now_s}
        self._until_s.update({(incarnation, r): now_s + self._for_s for r in replica_ids})

    def of(self, incarnation: str, now_s: float) -> set[str]:
        return {
            r for (i, r), until_s in self._until_s.items() if i == incarnation and until_s > now_s
        }
