"""Generated from proto/tokentide/v1 by `make proto`; never edited."""
