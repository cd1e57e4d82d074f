"""The stateful part: a paged cache, a model that reads it, a step over both. No network."""
