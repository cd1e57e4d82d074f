"""What a store loses: its last writes, or all of them. The witness's books go back with it."""

from typing import Any

from cluster import Cluster


def saved(cluster: Cluster) -> Any:
    return cluster.store.saved(), cluster.auditor.witness.saved()


def restore(cluster: Cluster, state: Any) -> None:
    """As after starting from an older append-only file: the same marker, fewer writes."""
    _lose_connections(cluster)
    cluster.store.restore(state[0])
    cluster.auditor.witness.restore(state[1])


def empty(cluster: Cluster) -> None:
    """As after FLUSHALL: another instance."""
    _lose_connections(cluster)
    cluster.store.empty()
    cluster.auditor.witness.restore(({}, {}))


def _lose_connections(cluster: Cluster) -> None:
    """Who comes back with fewer writes was away."""
    for replica in cluster.replicas.values():
        replica.store.lose_connection()
