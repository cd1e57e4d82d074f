"""The stateful worker: an engine without network, a session without torch, a thin servicer between."""
