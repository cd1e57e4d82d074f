"""What is told of a peer that cannot be installed."""

import sys

import pytest

from bench.peers.environments import last_error, run_or_unavailable
from bench.peers.system import Unavailable


def test_the_last_line_that_names_an_error_is_told() -> None:
    assert last_error("a\nERROR: no such version\nhint: try again\n") == "ERROR: no such version"
    assert last_error("one\ntwo\n\n") == "two"
    assert last_error("") == "no output"


def test_a_failing_command_makes_the_system_unavailable() -> None:
    program = "import sys; sys.exit('error: nothing here')"

    with pytest.raises(Unavailable, match="vllm: error: nothing here"):
        run_or_unavailable("vllm", [sys.executable, "-c", program])
