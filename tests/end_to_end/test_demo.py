"""`tokentide demo` as a newcomer runs it, and as he interrupts it."""

import re
import signal

import pytest
from command_process import command, is_open

from tokentide.models import packaged_model_dir

pytestmark = [
    pytest.mark.stack,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

KILL = (
    r"kill -9 (?P<label>(?P<kind>scheduler|worker)-\d) \(process \d+\): it .*;"
    r" (?P<num_tokens>\d+) of (?P<num_expected>\d+) tokens were out"
)


@pytest.fixture(autouse=True, scope="module")
def _model_is_there():
    packaged_model_dir()


def test_the_demo_shows_steps_answers_and_kills_sums_up_and_leaves_nothing_behind():
    with command("demo") as demo:
        status = demo.wait()

        assert status == 0, demo.output
        assert demo.processes_left() == []
        assert len(demo.ports) == 2 + 2 * 2  # a scheduler has two
        assert not any(is_open(port) for port in demo.ports)

    assert all(line.isprintable() for line in demo.lines)
    assert "valkey-server" in demo.output or "redis-server" in demo.output
    assert sum("first token after" in line for line in demo.lines) == 16  # in two rounds
    assert sum("[length]" in line or "[stop token]" in line for line in demo.lines) == 16
    steps = [line for line in demo.lines if line.startswith("worker-")]
    assert sum(" tides +" in line for line in steps) >= 4  # its prompt is cut into chunks
    assert any("chunk" in line and "decode" in line for line in steps)
    for name in ("generated", "prompt", "time to first token", "inter-token latency", "recomputed"):
        assert any(line.strip().startswith(name) for line in demo.lines)
    assert_all_went_on(demo.lines)


def assert_all_went_on(lines: list[str]) -> None:
    """First a scheduler was killed, then a worker, each while answers were under way; none differs."""
    kills = [re.match(KILL, line) for line in lines if line.startswith("kill -9")]
    assert all(kills), lines
    assert [kill["kind"] for kill in kills] == ["scheduler", "worker"]
    for kill in kills:
        assert 0 < int(kill["num_tokens"]) < int(kill["num_expected"])
        assert any(f"{kill['label']} was ended by SIGKILL" in line for line in lines)
    assert int(kills[0]["num_tokens"]) < int(kills[1]["num_tokens"])
    assert sum(bool(re.search(r"-2 +\d+ .* equal", line)) for line in lines) == 8
    assert any("all 8 answers equal the undisturbed ones" in line for line in lines)
    for kill in kills:
        assert any(f"after kill -9 {kill['label']}: longest pause" in line for line in lines)


@pytest.mark.parametrize(
    ("moment", "number", "expected"),
    [
        ("starting the embedded store", signal.SIGINT, 130),
        ("starting 2 worker", signal.SIGTERM, 143),
        ("starting 2 scheduler", signal.SIGINT, 130),
        ("sending 8 prompts", signal.SIGTERM, 143),
        ("kill -9 scheduler", signal.SIGINT, 130),
        ("kill -9 worker", signal.SIGTERM, 143),  # it is being started again
    ],
)
def test_a_stopped_demo_leaves_nothing_behind(moment, number, expected):
    with command("demo") as demo:
        demo.wait_line(moment)
        demo.signal(number)
        status = demo.wait()

        assert status == expected, demo.output
        assert demo.processes_left() == []
        assert not any(is_open(port) for port in demo.ports)
    assert "Traceback" not in demo.output


def test_a_second_ctrl_c_does_not_disturb_the_stopping():
    with command("demo") as demo:
        demo.wait_line("step ")
        demo.signal(signal.SIGINT)
        demo.signal(signal.SIGINT)
        status = demo.wait()

        assert status == 130, demo.output
        assert demo.processes_left() == []
