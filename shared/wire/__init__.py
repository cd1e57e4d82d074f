"""Where protobuf ends: plain functions between messages and the values of `shared.types`, and nothing more."""
