"""The vocabulary both services speak. Standard library only, but for `wire` and `pb`."""
