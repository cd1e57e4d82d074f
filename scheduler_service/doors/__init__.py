"""Thin servicers over one core: from protobuf, call `serving`, to protobuf."""
