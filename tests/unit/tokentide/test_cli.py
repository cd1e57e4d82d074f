"""Arguments and what becomes of them. What needs a service is tested end to end."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from tokentide import cli
from tokentide.commands import generate as generate_command
from tokentide.commands import model as model_command
from tokentide.commands import services
from tokentide.commands import up as up_command


@pytest.fixture
def seen(monkeypatch):
    """Arguments that reached the command behind the parser."""
    calls: list[tuple[tuple, dict]] = []

    def record(*args, **options):
        calls.append((args, options))
        return 0

    monkeypatch.setattr(generate_command, "generate", record)
    monkeypatch.setattr(generate_command, "chat", record)
    monkeypatch.setattr(up_command, "run_up", record)
    for name in ("run_scheduler", "run_worker", "run_bench"):
        monkeypatch.setattr(services, name, record)
    return calls


def invoke(*args: str):
    return CliRunner().invoke(cli.app, args)


def test_every_command_is_listed():
    shown = invoke("--help").stdout

    for name in (
        "demo",
        "up",
        "scheduler",
        "worker",
        "generate",
        "chat",
        "top",
        "steps",
        "strategy",
        "model",
        "health",
        "bench",
        "advise",
    ):
        assert f"  {name} " in shown


def test_the_version_is_the_installed_one():
    result = invoke("--version")

    assert result.exit_code == 0
    assert result.stdout == f"tokentide {version('tokentide')}\n"


@pytest.mark.slow
def test_help_imports_neither_torch_nor_transformers_nor_the_services():
    code = (
        "import sys; from tokentide.cli import app; app(['--help'], standalone_mode=False);"
        "heavy = {'torch', 'transformers', 'scheduler_service', 'worker_service', 'numpy', 'redis', 'matplotlib'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_only_the_sampling_that_was_given_is_sent(seen):
    invoke(
        "generate",
        "Hello",
        "--temperature",
        "0",
        "--stop",
        "a",
        "--stop",
        "b",
        "--endpoint",
        "x:1,y:2",
    )

    ((prompt,), options) = seen[0]
    assert prompt == "Hello"
    assert options["endpoints"] == "x:1,y:2"
    assert not options["raw"]
    sampling = options["options"]
    assert sampling["temperature"] == 0
    assert sampling["stop"] == ["a", "b"]
    assert not {"top_k", "top_p", "min_p", "seed", "max_tokens"} & sampling.keys()


@pytest.mark.parametrize("name", ["scheduler", "worker", "bench"])
def test_a_service_gets_all_its_arguments_untouched(seen, name):
    invoke(name, "--port", "0", "extra", "--help", "--print-config")

    assert seen == [((["--port", "0", "extra", "--help", "--print-config"],), {})]


def test_up_puts_the_operators_ports_a_hundred_above_the_clients_ports(seen, monkeypatch, tmp_path):
    monkeypatch.setattr(model_command, "model_folder", lambda name: tmp_path)
    monkeypatch.setattr("tokentide.commands.interrupts.raise_at_stop_signals", lambda: None)

    result = invoke("up", "--schedulers", "3", "--workers", "2", "--port", "6000", "--logs")

    assert result.exit_code == 0, result.output
    ((spec,), options) = seen[0]
    assert (spec.port, spec.operations_port, spec.worker_port) == (6000, 6100, 50061)
    assert (spec.num_schedulers, spec.num_workers) == (3, 2)
    assert options == {"live": False}


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["nope"], "error: No such command 'nope'.\n"),
        (["generate"], "error: Missing argument 'prompt'.\n"),
        (["generate", "x", "--zz"], "error: No such option: --zz\n"),
        (["up", "--model", "/nowhere"], "error: /nowhere: no such folder (or say `packaged`)\n"),
        (
            ["model", "convert", "/nowhere.gguf", "/tmp/absent"],
            "error: /nowhere.gguf: no such file\n",
        ),
    ],
)
def test_a_mistake_is_one_line_on_stderr(args, line, capsys, monkeypatch):
    monkeypatch.setattr("tokentide.commands.interrupts.raise_at_stop_signals", lambda: None)
    monkeypatch.setattr("tokentide.commands.model.raise_at_stop_signals", lambda: None)

    with pytest.raises(SystemExit) as ended:
        cli.main(args)

    assert ended.value.code in (1, 2)
    assert capsys.readouterr().err == line
