"""The command line's deeds, one module each; `tokentide.cli` names their arguments."""
