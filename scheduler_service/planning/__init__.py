"""PURE: values in, values out. No I/O, clock, randomness, protobuf, torch, logging."""
