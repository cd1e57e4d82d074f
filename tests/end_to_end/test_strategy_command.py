"""`tokentide strategy` against a running pool: what one replica is told, the other follows."""

import json

import pytest
from command_process import command

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def run(*args: str) -> tuple[int, str]:
    with command("strategy", *args) as process:
        return process.wait(), process.output


def test_the_pool_follows_until_the_strategy_is_cleared(tiny_stack):
    first, second = tiny_stack.operations_endpoints

    status, own = run("show", "--endpoint", first)
    assert (status, own) == (0, "continuous")

    try:
        wanted = ("static", "--batch-size", "2", "--max-wait-ms", "50")
        assert run("set", *wanted, "--endpoint", first) == (
            0,
            "static  batch_size=2  max_wait_ms=50",
        )
        while json.loads(run("show", "--json", "--endpoint", second)[1])["name"] != "static":
            pass  # it learns with its next beat; the test's time limit bounds it
    finally:
        status, cleared = run("clear", "--endpoint", first)
    assert (status, cleared) == (0, own)


def test_what_the_pool_refuses_is_one_line(tiny_stack):
    status, output = run(
        *("set", "dynamic", "--preserve-ordering", "--endpoint"),
        tiny_stack.operations_endpoints[0],
    )

    assert status == 1
    assert "several workers" in output
    assert "\n" not in output
