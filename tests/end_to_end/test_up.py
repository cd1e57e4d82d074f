"""`tokentide up`: a stack in the foreground."""

import os
import re
import signal
import socket

import pytest
from command_process import command, is_open

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(120)]

ANY_PORTS = ("--port", "0", "--worker-port", "0", "--kv-memory", "8MiB")


def process_of(line: str) -> int:
    found = re.search(r"process (\d+)", line)
    assert found is not None, line
    return int(found[1])


def ask(endpoints: str) -> int:
    """The exit status of one short request."""
    with command(
        *("generate", "abc", "--raw", "--max-tokens", "3", "--endpoint", endpoints)
    ) as asking:
        return asking.wait()


def test_ctrl_c_stops_the_whole_stack(tiny_model_folder):
    with command("up", "--model", str(tiny_model_folder), *ANY_PORTS, "--schedulers", "2") as up:
        up.wait_line("Ctrl-C stops everything")
        assert len(up.ports) == 5  # two for each scheduler, one for the worker
        assert all(is_open(port) for port in up.ports)
        up.signal(signal.SIGINT)

        assert up.wait() == 130, up.output
        assert up.processes_left() == []
        assert not any(is_open(port) for port in up.ports)


def test_logs_of_the_services_are_shown_with_their_names(tiny_model_folder):
    with command("up", "--model", str(tiny_model_folder), *ANY_PORTS, "--logs") as up:
        assert up.wait_line(" serving ").startswith("worker-0")
        assert up.wait_line(" serves on ").startswith("scheduler-0")
        up.signal(signal.SIGTERM)

        assert up.wait() == 143


@pytest.mark.parametrize("victim", ["worker-0", "scheduler-0"])
def test_a_child_that_dies_is_started_again_on_its_ports(tiny_model_folder, victim):
    with command("up", "--model", str(tiny_model_folder), *ANY_PORTS) as up:
        process = process_of(up.wait_line(f"{victim}: process"))
        up.wait_line("Ctrl-C stops everything")
        os.kill(process, signal.SIGKILL)

        up.wait_line(f"{victim} was ended by SIGKILL; starting it again")
        up.wait_line(f"{victim} is back")
        assert all(is_open(port) for port in up.ports)
        up.signal(signal.SIGINT)

        assert up.wait() == 130, up.output
        assert "Traceback" not in up.output
        assert up.processes_left() == []


def test_a_store_that_dies_is_started_again_and_the_stack_goes_on(tiny_model_folder):
    with command("up", "--model", str(tiny_model_folder), *ANY_PORTS) as up:
        store = process_of(up.wait_line("store: process"))
        clients = up.wait_line("clients: ").split()[-1]
        up.wait_line("Ctrl-C stops everything")
        assert ask(clients) == 0
        os.kill(store, signal.SIGKILL)
        up.wait_line("store was ended by SIGKILL; starting it again")
        up.wait_line("store is back")

        assert ask(clients) == 0
        up.signal(signal.SIGINT)

        assert up.wait() == 130, up.output
        assert "Traceback" not in up.output
        assert up.processes_left() == []


def test_nothing_outlives_a_launcher_that_is_killed(tiny_model_folder):
    with command("up", "--model", str(tiny_model_folder), *ANY_PORTS) as up:
        up.wait_line("Ctrl-C stops everything")
        assert len(up.processes_left()) == 3  # store, worker, scheduler
        up.signal(signal.SIGKILL)

        up.wait()
        up.wait_none_left()
        assert up.processes_left() == []


def test_a_data_folder_keeps_the_store_and_the_logs(tiny_model_folder, tmp_path):
    with command(
        *("up", "--model", str(tiny_model_folder), *ANY_PORTS, "--data-dir", str(tmp_path))
    ) as up:
        up.wait_line("Ctrl-C stops everything")
        up.signal(signal.SIGINT)
        up.wait()

    assert (tmp_path / "store" / "appendonlydir").is_dir()
    assert (tmp_path / "logs" / "worker-0.log").is_file()


@pytest.mark.parametrize("flag", ["--port", "--operations-port", "--worker-port"])
def test_a_port_in_use_is_one_line_before_anything_is_started(flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with command("up", "--model", "/nowhere", *ANY_PORTS, flag, str(port)) as up:
            assert up.wait() == 2
            assert up.output == (
                f"error: port {port} on 127.0.0.1 is in use or not ours to bind:"
                f" choose another with {flag} (0 = any)"
            )


def test_a_store_that_is_not_there_is_one_line(tiny_model_folder):
    with command(
        *("up", "--model", str(tiny_model_folder), *ANY_PORTS, "--redis-url", "redis://127.0.0.1:1")
    ) as up:
        assert up.wait() == 1
        assert up.lines[-1].startswith("error: scheduler-0 ended: redis://127.0.0.1:1: no answer")
        assert up.processes_left() == []
