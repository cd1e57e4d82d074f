"""The stateful part: a paged key/value cache, a model that reads it, and a step over both. No network."""
