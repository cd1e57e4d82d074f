"""`tokentide demo` as a newcomer runs it, and as he interrupts it."""

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


@pytest.fixture(autouse=True, scope="module")
def _model_is_there():
    packaged_model_dir()


def test_the_demo_shows_steps_and_answers_sums_up_and_leaves_nothing_behind():
    with command("demo") as demo:
        status = demo.wait()

        assert status == 0, demo.output
        assert demo.processes_left() == []
        assert len(demo.ports) == 3
        assert not any(is_open(port) for port in demo.ports)

    assert all(line.isprintable() for line in demo.lines)
    assert "valkey-server" in demo.output or "redis-server" in demo.output
    assert sum("first token after" in line for line in demo.lines) == 8
    assert sum("[length]" in line or "[stop token]" in line for line in demo.lines) == 8
    steps = [line for line in demo.lines if line.startswith("step ")]
    assert sum(" tides +" in line for line in steps) >= 4  # its prompt is cut into chunks
    assert any("chunk" in line and "decode" in line for line in steps)
    for name in ("generated", "prompt", "time to first token", "inter-token latency", "recomputed"):
        assert any(line.strip().startswith(name) for line in demo.lines)


@pytest.mark.parametrize(
    ("moment", "number", "expected"),
    [
        ("starting the embedded store", signal.SIGINT, 130),
        ("starting 1 worker", signal.SIGTERM, 143),
        ("starting 1 scheduler", signal.SIGINT, 130),
        ("sending 8 prompts", signal.SIGTERM, 143),
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
