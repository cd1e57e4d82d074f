"""Where requests are kept: the interface, and Redis or Valkey behind it."""
