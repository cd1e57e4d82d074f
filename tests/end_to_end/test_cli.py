"""The commands against a running stack, and their answers when something is wrong."""

import json
import socket

import pytest
from command_process import command

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def run(*args: str) -> tuple[int, str]:
    with command(*args) as process:
        return process.wait(), process.output


def test_generate_as_json_says_each_index_once_and_how_it_ended(tiny_stack):
    status, output = run(
        *("generate", "abc", "--raw", "--json", "--endpoint", ",".join(tiny_stack.endpoints)),
        *("--temperature", "0", "--max-tokens", "5", "--ignore-eos"),
    )

    assert status == 0, output
    chunks = [json.loads(line) for line in output.splitlines()]
    assert chunks[0]["num_prompt_tokens"] == 3
    ids = [token_id for chunk in chunks for token_id in chunk["token_ids"]]
    assert len(ids) == 5
    assert chunks[-1]["finish"]["cause"] == "length"
    assert chunks[-1]["finish"]["usage"]["num_output_tokens"] == 5


def test_a_refused_request_names_the_field(tiny_stack):
    status, output = run(
        "generate", "abc", "--raw", "--top-p", "7", "--endpoint", tiny_stack.endpoints[0]
    )

    assert status == 1
    assert output.startswith("error: INVALID_ARGUMENT: sampling.top_p:")
    assert "\n" not in output


def test_health_is_0_only_for_a_service_that_serves(tiny_stack):
    endpoint = tiny_stack.endpoints[0]

    assert run("health", "--endpoint", endpoint) == (0, "SERVING")
    status, output = run("health", "--endpoint", endpoint, "--json")
    assert (status, json.loads(output)["status"]) == (0, "SERVING")
    status, output = run("health", "--endpoint", endpoint, "--service", "nope")
    assert (status, output) == (1, f"error: {endpoint} knows no service 'nope'")


def test_top_shows_queue_and_workers(tiny_stack):
    endpoints = ",".join(tiny_stack.operations_endpoints)

    status, output = run("top", "--once", "--endpoint", endpoints)
    assert status == 0, output
    assert "serving tiny" in output
    assert "worker-0" in output and "worker-1" in output
    assert "wasted: held places" in output

    status, output = run("top", "--once", "--json", "--endpoint", endpoints)
    assert status == 0, output
    readings = [json.loads(line)["loads"] for line in output.splitlines()]
    assert [reading["replica_id"] for reading in readings] == ["scheduler-0", "scheduler-1"]
    assert all(len(reading["workers"]) == 2 for reading in readings)


def test_steps_shows_who_was_in_the_last_ones(tiny_stack):
    endpoints = ",".join(tiny_stack.operations_endpoints)
    asked = ("generate", "abc", "--raw", "--max-tokens", "3", "--ignore-eos")
    assert run(*asked, "--endpoint", tiny_stack.endpoints[0])[0] == 0

    status, output = run("steps", "--once", "50", "--endpoint", endpoints)
    assert status == 0, output
    assert "decode 1: " in output

    status, output = run("steps", "--once", "1", "--json", "--endpoint", endpoints)
    assert status == 0, output
    steps = [json.loads(line)["step"] for line in output.splitlines()]
    assert steps and all("skipped" in step for step in steps)


def test_the_clients_port_given_for_the_operators_is_told(tiny_stack):
    status, output = run("strategy", "show", "--endpoint", tiny_stack.endpoints[0])

    assert status == 1
    assert "the wrong port?" in output
    assert "\n" not in output


@pytest.mark.parametrize("name", ["generate", "health", "top", "steps"])
@pytest.mark.timeout(20)
def test_where_nobody_listens_the_command_gives_up_with_one_line(name):
    args = [name, "hello"] if name == "generate" else [name]

    status, output = run(*args, "--endpoint", "127.0.0.1:1")

    assert status == 1
    assert output.startswith("error: no answer from 127.0.0.1:1")
    assert "\n" not in output


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_settings_are_printed_with_secrets_masked(name):
    args = ["--redis-url", "redis://:secret@x:1"] if name == "scheduler" else ["--model", "/m"]

    status, output = run(name, *args, "--port", "7", "--print-config")

    assert status == 0, output
    assert json.loads(output)["port"] == 7
    assert "secret" not in output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("scheduler", "--nope", "1"), "--nope"),
        (("scheduler", "--port", "x"), "port"),
        (("scheduler", "--config", "/nowhere.toml"), "/nowhere.toml: No such file"),
        (("worker", "--model", "/nowhere", "--port", "0"), "/nowhere"),
        (("worker", "--port", "0"), "model"),
        (("worker", "--model", "/m", "--device", "foo"), "device"),
    ],
)
def test_a_service_that_cannot_start_says_why_in_one_line(args, told):
    status, output = run(*args)

    assert status == 2
    assert output.startswith("error: ")
    assert told in output
    assert "\n" not in output


def test_a_worker_refuses_a_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text("{}")

    status, output = run("worker", "--model", str(tmp_path), "--port", "0")

    assert status == 2
    assert output.startswith(f"error: {tmp_path} has no tokenizer.json")
    assert "\n" not in output


def test_bad_toml_and_unknown_keys_are_one_line(tmp_path):
    bad, unknown = tmp_path / "bad.toml", tmp_path / "unknown.toml"
    bad.write_text("[scheduler\n")
    unknown.write_text("[scheduler]\ntoken_bugdet = 3\n")

    for path in (bad, unknown):
        status, output = run("scheduler", "--config", str(path))
        assert status == 2
        assert output.startswith(f"error: {path}:")
        assert "\n" not in output


def test_an_unknown_environment_setting_is_an_error():
    with command("scheduler", TOKENTIDE_SCHEDULER_TOKEN_BUGDET="3") as process:
        assert process.wait() == 2
        assert (
            process.output
            == "error: unknown environment settings: TOKENTIDE_SCHEDULER_TOKEN_BUGDET"
        )


def test_a_scheduler_whose_port_is_taken_says_so():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, output = run("scheduler", "--port", port, "--operations-port", "0")

    assert status == 2
    assert output == f"error: port {port} on 127.0.0.1 is in use or not ours to bind"
